#include "interpreter/python/cpython_compat.h"

#include "interpreter/interpreter_module.h"

#include <structmember.h>

#include "interpreter/loop/code_data.h"
#include "interpreter/loop/garbage_collection.h"
#include "interpreter/loop/interpret.h"
#include "interpreter/loop/interpreted_getter.h"
#include "interpreter/loop/intrinsics.h"
#include "interpreter/loop/native_operation.h"
#include "interpreter/loop/recording_observer.h"
#include "interpreter/provenance/tracker_native.h"
#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

namespace {

/// The object that `interpret(callable)` returns to Python.
struct Interpreted {
  PyObject_HEAD PyObject* callable;
  PyObject* dict;
  PyObject* weak_references;
};

PyObject* callable_of(PyObject* self) { return reinterpret_cast<Interpreted*>(self)->callable; }

PyObject* interpreted_call(PyObject* self, PyObject* arguments, PyObject* keywords) {
  py::Ref result = py::Ref::steal(interpret(callable_of(self), arguments, keywords, nullptr));
  if (result && adopt_generator(result.get()) < 0) return nullptr;
  return result.release();
}

/// Attributes are the callable's, but for those that were set here.
PyObject* interpreted_get_attribute(PyObject* self, PyObject* name) {
  // Every type has these two.
  if (PyUnicode_CompareWithASCIIString(name, "__doc__") == 0 ||
      PyUnicode_CompareWithASCIIString(name, "__module__") == 0)
    return PyObject_GetAttr(callable_of(self), name);
  PyObject* own = PyObject_GenericGetAttr(self, name);
  if (own != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  return PyObject_GetAttr(callable_of(self), name);
}

PyObject* interpreted_bind(PyObject* self, PyObject* instance, PyObject* /*owner*/) {
  return instance == nullptr || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

PyObject* interpreted_repr(PyObject* self) { return PyUnicode_FromFormat("<interpreted %R>", callable_of(self)); }

int interpreted_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(callable_of(self));
  Py_VISIT(reinterpret_cast<Interpreted*>(self)->dict);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

int interpreted_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Interpreted*>(self)->callable);
  Py_CLEAR(reinterpret_cast<Interpreted*>(self)->dict);
  return 0;
}

void interpreted_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* type = Py_TYPE(self);
  if (reinterpret_cast<Interpreted*>(self)->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  interpreted_clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef interpreted_members[] = {
    {"__wrapped__", T_OBJECT_EX, offsetof(Interpreted, callable), READONLY, "The callable that is interpreted."},
    {"__dictoffset__", T_PYSSIZET, offsetof(Interpreted, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Interpreted, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef interpreted_properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

template <typename Function>
void* slot(Function* function) {
  return reinterpret_cast<void*>(function);
}

PyType_Slot interpreted_slots[] = {
    {Py_tp_call, slot(interpreted_call)},         {Py_tp_getattro, slot(interpreted_get_attribute)},
    {Py_tp_descr_get, slot(interpreted_bind)},    {Py_tp_repr, slot(interpreted_repr)},
    {Py_tp_traverse, slot(interpreted_traverse)}, {Py_tp_clear, slot(interpreted_clear)},
    {Py_tp_dealloc, slot(interpreted_dealloc)},   {Py_tp_members, interpreted_members},
    {Py_tp_getset, interpreted_properties},       {0, nullptr},
};

PyType_Spec interpreted_spec = {
    "thunder.interpreter.Interpreted",
    sizeof(Interpreted),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    interpreted_slots,
};

PyTypeObject* interpreted_type = nullptr;

PyObject* interpret_function(PyObject* /*module*/, PyObject* callable) { return make_interpreted(callable); }

/// The opcodes that this build has a row for.
PyObject* opcode_rows(PyObject* /*module*/, PyObject* /*unused*/) {
  py::Ref rows = py::Ref::steal(PyDict_New());
  if (!rows) return nullptr;
#define THUNDER_OPCODE(opcode, handler, units)                                                             \
  {                                                                                                        \
    const py::Ref row = py::Ref::steal(Py_BuildValue("(isi)", static_cast<int>(opcode), #handler, units)); \
    if (!row || PyDict_SetItemString(rows.get(), #opcode, row.get()) < 0) return nullptr;                  \
  }
#include "interpreter/loop/opcodes.h"
  return rows.release();
}

PyMethodDef functions[] = {
    {"interpret", interpret_function, METH_O,
     "interpret(callable)\n--\n\nA callable that runs `callable`, and every Python function that runs until it "
     "returns, "
     "in thunder's interpreter."},
    {"_record_events", record_events, METH_VARARGS, "For tests: (result, events) of a call under an observer."},
    {"_opcode_rows", opcode_rows, METH_NOARGS, "Opcode name -> (number, handler, inline cache units)."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject* make_interpreted(PyObject* callable) {
  if (!PyCallable_Check(callable)) {
    PyErr_Format(PyExc_TypeError, "interpret: expected a callable, got %.200s", Py_TYPE(callable)->tp_name);
    return nullptr;
  }
  auto* self = reinterpret_cast<Interpreted*>(interpreted_type->tp_alloc(interpreted_type, 0));
  if (self != nullptr) self->callable = Py_NewRef(callable);
  return reinterpret_cast<PyObject*>(self);
}

int init_interpreter(PyObject* module) {
  if (CodeData::prepare() < 0 || prepare_native_operations() < 0 || prepare_garbage_collection() < 0) return -1;
  prepare_intrinsics();
  prepare_native_effects();
  prepare_interpreted_getters();
  if (interpreted_type == nullptr) {
    interpreted_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&interpreted_spec));
    if (interpreted_type == nullptr) return -1;
  }
  return PyModule_AddFunctions(module, functions);
}

}  // namespace thunder::interpreter
