#include "dispatch/python/python_transform.h"

#include <string>
#include <utility>

#include "dispatch/python/errors.h"
#include "dispatch/python/trace_object.h"
#include "interpreter/python/python_ref.h"
#include "interpreter/python/shared_object.h"

namespace thunder::dispatch {
namespace {

py::Ref to_object(const ir::Trace& trace) { return checked(make_trace_object(trace)); }

ir::Trace finish(const std::string& name, const char* hook, const py::Ref& result) {
  const ir::Trace* trace = trace_in(result.get());
  if (trace == nullptr) {
    PyErr_Format(PyExc_TypeError, "transform %s: %s: expected a trace, got an object of type '%s'", name.c_str(), hook,
                 Py_TYPE(result.get())->tp_name);
    throw PendingError();
  }
  ir::Trace made = *trace;
  if (made.history().empty() || made.history().back() != name) made.add_history(name);
  return made;
}

}  // namespace

std::shared_ptr<const compile::TraceTransform> make_transform(PyObject* hooks) {
  const char* name = nullptr;
  PyObject *pre_prologue, *post_optimization;
  if (PyArg_ParseTuple(hooks, "sOO", &name, &pre_prologue, &post_optimization) == 0) return nullptr;
  auto transform = std::make_shared<compile::TraceTransform>();
  transform->name = name;
  if (pre_prologue != Py_None) {
    transform->pre_prologue = [name = transform->name, function = interpreter::share_object(pre_prologue)](
                                  const ir::Trace& prologue, const ir::Trace& computation, const ir::Trace& epilogue) {
      const HookScope hook;
      const py::Ref first = to_object(prologue), second = to_object(computation), third = to_object(epilogue);
      return finish(name, "transform_traces_pre_prologue",
                    checked(PyObject_CallFunctionObjArgs(static_cast<PyObject*>(function.get()), first.get(),
                                                         second.get(), third.get(), nullptr)));
    };
  }
  if (post_optimization != Py_None) {
    transform->post_optimization = [name = transform->name, function = interpreter::share_object(post_optimization)](
                                       const ir::Trace& trace, compile::SavedRange saved) {
      const HookScope hook;
      const py::Ref object = to_object(trace);
      return finish(
          name, "transform_trace_post_optimization",
          checked(PyObject_CallFunction(static_cast<PyObject*>(function.get()), "Onn", object.get(),
                                        static_cast<Py_ssize_t>(saved.begin), static_cast<Py_ssize_t>(saved.end))));
    };
  }
  return transform;
}

}  // namespace thunder::dispatch
