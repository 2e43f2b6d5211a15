#include "interpreter/python/cpython_compat.h"

#include "interpreter/loop/recording_observer.h"

#include "interpreter/loop/interpret.h"
#include "interpreter/loop/observer.h"
#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

namespace {

const char* name_of(AttributeSource source) {
  switch (source) {
    case AttributeSource::kInstance:
      return "instance";
    case AttributeSource::kType:
      return "type";
    case AttributeSource::kDescriptor:
      return "descriptor";
    case AttributeSource::kModule:
      return "module";
    case AttributeSource::kTypeObject:
      return "type object";
    case AttributeSource::kComputed:
      return "computed";
  }
  return "";
}

const char* name_of(Aspect aspect) {
  switch (aspect) {
    case Aspect::kType:
      return "type";
    case Aspect::kLength:
      return "length";
    case Aspect::kTruth:
      return "truth";
    case Aspect::kKeys:
      return "keys";
    case Aspect::kContents:
      return "contents";
  }
  return "";
}

const char* name_of(WriteKind kind) {
  switch (kind) {
    case WriteKind::kAttribute:
    case WriteKind::kDeleteAttribute:
      return "attribute";
    case WriteKind::kItem:
    case WriteKind::kDeleteItem:
      return "item";
    case WriteKind::kGlobal:
    case WriteKind::kDeleteGlobal:
      return "global";
    case WriteKind::kCell:
      return "cell";
    case WriteKind::kContents:
      return "contents";
  }
  return "";
}

class RecordingObserver final : public Observer {
 public:
  RecordingObserver() : events_(py::Ref::steal(PyList_New(0))) {}
  [[nodiscard]] PyObject* events() const { return events_.get(); }

  PyObject* read_attribute(PyObject* owner, PyObject* name, AttributeSource source, PyObject* value) override {
    return keep(value, Py_BuildValue("(sOOsO)", "read_attribute", owner, name, name_of(source), value));
  }
  bool read_missing_attribute(PyObject* owner, PyObject* name) override {
    return add(Py_BuildValue("(sOO)", "read_missing_attribute", owner, name));
  }
  PyObject* read_global(PyObject* /*globals*/, PyObject* name, bool from_builtins, PyObject* value) override {
    return keep(value, Py_BuildValue("(sOsO)", "read_global", name, from_builtins ? "builtins" : "globals", value));
  }
  PyObject* read_cell(PyObject* cell, PyObject* value) override {
    return keep(value, Py_BuildValue("(sOO)", "read_cell", cell, value));
  }
  PyObject* read_item(PyObject* owner, PyObject* key, PyObject* value) override {
    return keep(value, Py_BuildValue("(sOOO)", "read_item", owner, key, value));
  }
  PyObject* receive(PyObject* value) override {
    // A generator that an event keeps alive would not be closed when the program drops it.
    if (PyAsyncGen_CheckExact(value)) return value;
    return keep(value, Py_BuildValue("(sO)", "receive", value));
  }
  bool examine_presence(PyObject* owner, PyObject* key) override {
    return add(Py_BuildValue("(sOO)", "examine_presence", owner, key));
  }
  bool examine(PyObject* owner, Aspect aspect) override {
    return add(Py_BuildValue("(sOs)", "examine", owner, name_of(aspect)));
  }
  PyObject* given(PyObject* value) override {
    return add(Py_BuildValue("(sO)", "given", value)) ? Py_NewRef(value) : nullptr;
  }
  bool before_write(PyObject* owner, WriteKind kind, PyObject* key) override {
    return add(Py_BuildValue("(sOsO)", "before_write", owner, name_of(kind), key != nullptr ? key : Py_None));
  }
  int before_native_call(PyObject* callable, PyObject* const* /*arguments*/, std::size_t /*count*/, PyObject* /*names*/,
                         PyObject** /*result*/) override {
    return add(Py_BuildValue("(sO)", "before_native_call", callable)) ? 0 : -1;
  }
  PyObject* after_native_call(PyObject* callable, PyObject* const* /*arguments*/, std::size_t /*count*/,
                              PyObject* /*names*/, PyObject* value) override {
    return keep(value, Py_BuildValue("(sOO)", "after_native_call", callable, value));
  }
  int before_python_call(PyObject* function, PyObject* const* /*arguments*/, std::size_t count, PyObject* /*names*/,
                         PyObject** /*result*/) override {
    PyObject* shown = function != nullptr ? function : Py_None;
    return add(Py_BuildValue("(sOn)", "before_python_call", shown, static_cast<Py_ssize_t>(count))) ? 0 : -1;
  }
  Treatment treatment(PyCodeObject* code) override {
    return PyUnicode_CompareWithASCIIString(code->co_name, "natively") == 0 ? Treatment::kNative
                                                                            : Treatment::kInterpret;
  }

 private:
  /// Appends `event` (stolen); false with an exception set.
  bool add(PyObject* event) {
    const py::Ref owned = py::Ref::steal(event);
    return event != nullptr && PyList_Append(events_.get(), event) == 0;
  }
  /// Adds the event of a value (stolen), and passes the value on.
  PyObject* keep(PyObject* value, PyObject* event) {
    if (add(event)) return value;
    Py_DECREF(value);
    return nullptr;
  }

  py::Ref events_;
};

}  // namespace

PyObject* record_events(PyObject* /*module*/, PyObject* arguments) {
  if (PyTuple_GET_SIZE(arguments) == 0) {
    PyErr_SetString(PyExc_TypeError, "record_events: expected a callable");
    return nullptr;
  }
  RecordingObserver observer;
  const py::Ref rest = py::Ref::steal(PyTuple_GetSlice(arguments, 1, PyTuple_GET_SIZE(arguments)));
  if (!rest) return nullptr;
  const py::Ref result = py::Ref::steal(interpret(PyTuple_GET_ITEM(arguments, 0), rest.get(), nullptr, &observer));
  return result ? PyTuple_Pack(2, result.get(), observer.events()) : nullptr;
}

}  // namespace thunder::interpreter
