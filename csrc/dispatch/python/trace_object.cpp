#include "dispatch/python/trace_object.h"

#include <torch/csrc/Generator.h>

#include <memory>
#include <string>
#include <utility>

#include "dispatch/python/errors.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/python/python_ref.h"
#include "ir/printer.h"

namespace thunder::dispatch {
namespace {

struct TraceObject {
  PyObject_HEAD std::shared_ptr<const ir::Trace> trace;
};

TraceObject& as_object(PyObject* self) { return *reinterpret_cast<TraceObject*>(self); }
const ir::Trace& trace_of(PyObject* self) { return *as_object(self).trace; }

void destroy_trace(PyObject* self) {
  std::destroy_at(&as_object(self).trace);
  Py_TYPE(self)->tp_free(self);
}

PyObject* to_text(PyObject* self) {
  try {
    const std::string text = ir::print(trace_of(self));
    return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* get_name(PyObject* self, void*) { return PyUnicode_FromString(trace_of(self).name().c_str()); }

PyObject* get_kind(PyObject* self, void*) {
  const std::string_view kind = to_string(trace_of(self).kind());
  return PyUnicode_FromStringAndSize(kind.data(), static_cast<Py_ssize_t>(kind.size()));
}

PyObject* get_history(PyObject* self, void*) {
  py::Ref list = py::Ref::steal(PyList_New(0));
  for (const std::string& step : trace_of(self).history()) {
    const py::Ref text = py::Ref::steal(PyUnicode_FromString(step.c_str()));
    if (!list || !text || PyList_Append(list.get(), text.get()) < 0) return nullptr;
  }
  return list.release();
}

PyObject* get_context(PyObject* self, PyObject*) {
  py::Ref dict = py::Ref::steal(PyDict_New());
  const auto& objects = trace_of(self).context()->objects;
  for (std::size_t i = 0; dict && i < objects.size(); ++i) {
    const py::Ref object = to_python(objects[i]);
    const std::string name = "object" + std::to_string(i);
    if (!object || PyDict_SetItemString(dict.get(), name.c_str(), object.get()) < 0) return nullptr;
  }
  return dict.release();
}

PyMethodDef trace_methods[] = {
    {"context", get_context, METH_NOARGS, "The constants of the printed program by name."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef trace_attributes[] = {
    {"name", get_name, nullptr, "Name of the function in the printed program.", nullptr},
    {"kind", get_kind, nullptr, "Which trace of a compiled program it is.", nullptr},
    {"history", get_history, nullptr, "What made this trace from the recorded one, oldest first.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject trace_type = [] {
  PyTypeObject type{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
  type.tp_name = "thunder._C.Trace";
  type.tp_basicsize = sizeof(TraceObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  type.tp_doc = "One stage of a compiled program; str() gives its Python text.";
  type.tp_dealloc = destroy_trace;
  type.tp_str = to_text;
  type.tp_methods = trace_methods;
  type.tp_getset = trace_attributes;
  return type;
}();

}  // namespace

py::Ref to_python(const ir::TraceContext::Object& object) {
  void* content = object.owner.get();
  if (content == nullptr) return py::Ref::share(Py_None);
  switch (object.kind) {
    case ir::ObjectKind::kPythonObject:
      return py::Ref::share(static_cast<PyObject*>(content));
    case ir::ObjectKind::kTensor:
      return py::Ref::steal(wrap_tensor(*static_cast<at::Tensor*>(content)));
    case ir::ObjectKind::kGenerator:
      return py::Ref::steal(THPGenerator_Wrap(static_cast<const c10::IValue*>(content)->toGenerator()));
    case ir::ObjectKind::kDispatcherValue:
    case ir::ObjectKind::kCustomGradient:
    case ir::ObjectKind::kPythonFunction:
      break;
  }
  return py::Ref::share(Py_None);
}

PyObject* make_trace_object(ir::Trace trace) {
  PyObject* self = trace_type.tp_alloc(&trace_type, 0);
  if (self != nullptr) std::construct_at(&as_object(self).trace, std::make_shared<const ir::Trace>(std::move(trace)));
  return self;
}

const ir::Trace* trace_in(PyObject* object) { return share_trace(object).get(); }

std::shared_ptr<const ir::Trace> share_trace(PyObject* object) {
  return Py_TYPE(object) == &trace_type ? as_object(object).trace : nullptr;
}

PyObject* make_trace_list(std::vector<ir::Trace> traces) {
  py::Ref list = py::Ref::steal(PyList_New(0));
  for (ir::Trace& trace : traces) {
    const py::Ref object = py::Ref::steal(list ? make_trace_object(std::move(trace)) : nullptr);
    if (!object || PyList_Append(list.get(), object.get()) < 0) return nullptr;
  }
  return list.release();
}

int init_trace_object(PyObject* module) { return PyModule_AddType(module, &trace_type); }

}  // namespace thunder::dispatch
