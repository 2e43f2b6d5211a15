#include "dispatch/python/python_transform.h"

#include <string>
#include <utility>

#include "dispatch/python/errors.h"
#include "dispatch/python/python_tensor.h"
#include "dispatch/python/trace_object.h"
#include "interpreter/python/python_ref.h"
#include "interpreter/python/shared_object.h"

namespace thunder::dispatch {
namespace {

py::Ref to_object(const ir::Trace& trace) { return checked(make_trace_object(trace)); }

/// For each input its names in the module, and the tensor behind it.
py::Ref stored_tensors(const compile::CallTraces& traces) {
  py::Ref list = checked(PyList_New(0));
  for (const compile::ProgramInput& input : traces.inputs) {
    const py::Ref names = checked(PyList_New(0));
    for (const std::string& name : input.names) {
      const py::Ref text = checked(PyUnicode_FromString(name.c_str()));
      if (PyList_Append(names.get(), text.get()) < 0) throw PendingError();
    }
    const py::Ref tensor = checked(wrap_tensor(input.tensor));
    const py::Ref item = checked(PyTuple_Pack(2, names.get(), tensor.get()));
    if (PyList_Append(list.get(), item.get()) < 0) throw PendingError();
  }
  return list;
}

ir::Trace finish(const std::string& name, const char* hook, PyObject* result) {
  const ir::Trace* trace = trace_in(result);
  if (trace == nullptr) {
    PyErr_Format(PyExc_TypeError, "transform %s: %s: expected a trace, got an object of type '%s'", name.c_str(), hook,
                 Py_TYPE(result)->tp_name);
    throw PendingError();
  }
  ir::Trace made = *trace;
  if (made.history().empty() || made.history().back() != name) made.add_history(name);
  return made;
}

/// Calls a function with the pending exception, which stays pending.
void tell_pending_error(PyObject* function) {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (!py::Ref::steal(PyObject_CallOneArg(function, value == nullptr ? Py_None : value)))
    PyErr_WriteUnraisable(function);
  PyErr_Restore(type, value, traceback);
}

}  // namespace

std::shared_ptr<const compile::TraceTransform> make_transform(PyObject* hooks) {
  const char* name = nullptr;
  PyObject *pre_prologue, *post_optimization, *check_collectives, *note_failure;
  if (PyArg_ParseTuple(hooks, "sOOOO", &name, &pre_prologue, &post_optimization, &check_collectives, &note_failure) ==
      0) {
    return nullptr;
  }
  auto transform = std::make_shared<compile::TraceTransform>();
  transform->name = name;
  if (pre_prologue != Py_None) {
    transform->pre_prologue = [name = transform->name,
                               function = interpreter::share_object(pre_prologue)](const compile::CallTraces& traces) {
      const char* const method = "transform_traces_pre_prologue";
      const HookScope hook;
      const py::Ref first = to_object(traces.prologue), second = to_object(traces.computation);
      const py::Ref third = to_object(traces.epilogue), stored = stored_tensors(traces);
      PyObject* const module = traces.module == nullptr ? Py_None : static_cast<PyObject*>(traces.module.get());
      const py::Ref made =
          checked(PyObject_CallFunctionObjArgs(static_cast<PyObject*>(function.get()), first.get(), second.get(),
                                               third.get(), stored.get(), module, nullptr));
      PyObject *prologue, *computation, *epilogue;
      if (PyArg_ParseTuple(made.get(), "OOO", &prologue, &computation, &epilogue) == 0) throw PendingError();
      return compile::TraceTransform::Call{finish(name, method, prologue), finish(name, method, computation),
                                           epilogue == third.get() ? traces.epilogue : finish(name, method, epilogue)};
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
                                        static_cast<Py_ssize_t>(saved.begin), static_cast<Py_ssize_t>(saved.end)))
              .get());
    };
  }
  if (check_collectives != Py_None) {
    transform->check_collectives = [function = interpreter::share_object(check_collectives)](
                                       ir::TraceKind kind, const std::string& collectives) {
      const HookScope hook;
      static_cast<void>(checked(PyObject_CallFunction(static_cast<PyObject*>(function.get()), "ss",
                                                      std::string(ir::to_string(kind)).c_str(), collectives.c_str())));
    };
  }
  if (note_failure != Py_None) {
    transform->note_failure = [function = interpreter::share_object(note_failure)] {
      const HookScope hook;
      tell_pending_error(static_cast<PyObject*>(function.get()));
    };
  }
  return transform;
}

}  // namespace thunder::dispatch
