#include "dispatch/capture/python_backward.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_function.h>
#include <torch/csrc/autograd/python_hook.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "base/error.h"
#include "dispatch/call/output_history.h"
#include "dispatch/call/thread_state.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/python/backward_module.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/gil.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/provenance/provenance_constant.h"
#include "ir/symbol_values.h"
#include "tracer/at_other_sizes.h"
#include "tracer/python_function.h"
#include "tracer/recorder.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"

namespace thunder::dispatch {
namespace {

[[noreturn]] void refuse(PyObject* type, const std::string& what) {
  throw UserError(ErrorKind::kNotImplemented, "thunder.jit: not supported inside a jitted function: the backward of " +
                                                  std::string(reinterpret_cast<PyTypeObject*>(type)->tp_name) +
                                                  " looks at data or does something besides computing gradients, " +
                                                  what);
}

bool is_trace_tensor(PyObject* object) { return is_tensor(object) && tracer::is_trace_tensor(unpack_tensor(object)); }

std::vector<PyObject*> outputs_of(PyObject* result) {
  if (!PyTuple_Check(result)) return {result};
  PyObject** items = reinterpret_cast<PyTupleObject*>(result)->ob_item;
  return {items, items + PyTuple_GET_SIZE(result)};
}

/// The context of the call that gave these results; null: none of them has a history of its own.
py::Ref context_of(const std::vector<PyObject*>& outputs) {
  for (PyObject* output : outputs) {
    if (!is_trace_tensor(output) || !unpack_tensor(output).requires_grad()) continue;
    const auto node = unpack_tensor(output).grad_fn();
    if (!node || !tracer::is_foreign(node.get())) continue;
    const interpreter::NativeScope native;
    const WithoutFunctionModes unseen;
    const py::Ref context = checked(PyObject_GetAttrString(output, "grad_fn"));
    if (THPFunction_Check(context.get())) return context;
  }
  return nullptr;
}

const THPFunction& as_function(const py::Ref& context) { return *reinterpret_cast<const THPFunction*>(context.get()); }

/// Everything that is held by an object: items and attributes, and those of these.
void append_parts(PyObject* object, int depth, std::vector<py::Ref>& parts) {
  constexpr int kDeepest = 4;
  parts.push_back(py::Ref::share(object));
  if (depth == kDeepest || is_tensor(object)) return;
  const auto append_all = [&](PyObject* items) {
    const py::Ref list = py::Ref::steal(PySequence_List(items));
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
      append_parts(PyList_GET_ITEM(list.get(), i), depth + 1, parts);
    }
  };
  if (PyList_Check(object) || PyTuple_Check(object) || PyAnySet_Check(object)) return append_all(object);
  const py::Ref attributes = PyDict_Check(object) ? py::Ref::share(object) : interpreter::instance_dict(object);
  if (!attributes || PyType_Check(object) || PyModule_Check(object) || PyFunction_Check(object)) return;
  const py::Ref values = py::Ref::steal(PyDict_Values(attributes.get()));
  if (values) append_all(values.get());
  PyErr_Clear();
}

/// The objects that the forward left on a context; the lists are equal when nobody has changed it.
std::vector<PyObject*> state_of(const py::Ref& context, std::vector<py::Ref>& kept) {
  const interpreter::NativeScope native;
  const std::size_t begin = kept.size();
  if (const py::Ref attributes = interpreter::instance_dict(context.get())) append_parts(attributes.get(), 0, kept);
  std::vector<PyObject*> state;
  for (std::size_t i = begin; i < kept.size(); ++i) state.push_back(kept[i].get());
  return state;
}

/// Kept by a trace, which may die on any thread.
std::shared_ptr<void> keep(py::Ref object) {
  return {object.release(), [](void* kept) {
            if (Py_IsInitialized() == 0) return;
            const GilHold gil;
            Py_DECREF(static_cast<PyObject*>(kept));
          }};
}

py::Ref to_tuple(const std::vector<std::int32_t>& numbers) {
  py::Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(numbers.size())));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    py::Ref number = checked(PyLong_FromLong(numbers[i]));
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), number.release());
  }
  return tuple;
}

std::vector<at::Tensor> saved_by(const py::Ref& context) {
  const interpreter::NativeScope native;
  const py::Ref saved = checked(PyObject_GetAttrString(context.get(), "saved_tensors"));
  std::vector<at::Tensor> tensors;
  for (Py_ssize_t i = 0; PyTuple_Check(saved.get()) && i < PyTuple_GET_SIZE(saved.get()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(saved.get(), i);
    tensors.push_back(is_tensor(item) ? unpack_tensor(item) : at::Tensor());
  }
  return tensors;
}

/// The hooks that the program put on a node, those of `PyHook`, which libtorch does not export.
template <typename PyHook, typename Hooks>
py::Ref hooks_on(const Hooks& hooks, std::string_view name) {
  py::Ref all = checked(PyList_New(0));
  for (const auto& hook : hooks) {
    const auto& any = *hook;
    if (std::string_view(typeid(any).name()).find(name) == std::string_view::npos) continue;
    const py::Ref found = hooks_in(static_cast<const PyHook&>(any).dict);
    if (!found || PyList_SetSlice(all.get(), PyList_GET_SIZE(all.get()), PyList_GET_SIZE(all.get()), found.get()) < 0) {
      throw PendingError();
    }
  }
  return all;
}

}  // namespace

int PythonBackwards::enter() {
  if (std::exchange(is_entering_, false)) return 0;
  PyErr_SetString(
      PyExc_NotImplementedError,
      "thunder.jit: not supported inside a jitted function: the apply of a torch.autograd.Function called by "
      "code in C (map, functools.reduce); call it in Python");
  return -1;
}

int PythonBackwards::apply(PyObject* own, PyObject* const* arguments, std::size_t count, PyObject* names,
                           PyObject** result) {
  // PyTorch's code in C reads these.
  for (const char* name : {"forward", "setup_context"}) {
    const py::Ref attribute = py::Ref::steal(PyUnicode_InternFromString(name));
    const py::Ref value = py::Ref::steal(PyObject_GetAttr(arguments[0], attribute.get()));
    PyObject* seen = value ? tracker->read_attribute(arguments[0], attribute.get(),
                                                     interpreter::AttributeSource::kTypeObject, Py_NewRef(value.get()))
                           : nullptr;
    if (seen == nullptr) return -1;
    Py_DECREF(seen);
  }
  is_entering_ = true;
  py::Ref made = py::Ref::steal(PyObject_Vectorcall(own, arguments, count, names));
  is_entering_ = false;
  if (!made || !adopt(arguments[0], {arguments + 1, count - 1}, names, made.get())) return -1;
  *result = made.release();
  return 1;
}

bool PythonBackwards::adopt(PyObject* type, std::span<PyObject* const> arguments, PyObject* names, PyObject* result) {
  try {
    const std::vector<PyObject*> outputs = outputs_of(result);
    const py::Ref context = context_of(outputs);
    if (!context) return true;
    for (PyObject* output : outputs) {
      if (is_trace_tensor(output)) applied_.push_back({unpack_tensor(output).grad_fn(), context});
    }
    for (PyObject* output : outputs) {
      const bool is_written = is_trace_tensor(output) && std::ranges::find(arguments, output) != arguments.end();
      if (!is_written || !tracer::trace_impl(unpack_tensor(output))->state()->view) continue;
      throw UserError(ErrorKind::kNotImplemented,
                      "thunder.jit: not supported inside a jitted function: a torch.autograd.Function that writes to a "
                      "view (mark_dirty); give it a tensor with memory of its own");
    }
    static PyObject* const hooked_module =
        loaded_function("torch.nn.modules._functions", "BackwardHookFunction").release();
    // Which results are differentiated shows at each backward.
    const auto is_differentiable = [](PyObject* output) {
      return is_trace_tensor(output) && unpack_tensor(output).requires_grad();
    };
    const bool wants_none =
        !as_function(context).materialize_grads && std::ranges::count_if(outputs, is_differentiable) > 1;
    if (type == hooked_module || wants_none || found_.functions.contains(type)) {
      if (names != nullptr && PyTuple_GET_SIZE(names) > 0) refuse(type, "and it is called with keywords");
      keep_as_python(type, arguments, result, context.get());
      return true;
    }
    tracer::Recorder* recorder = tracer::recorder_on_top();
    const auto record = [&] {
      for (PyObject* output : outputs) {
        if (is_trace_tensor(output)) static_cast<void>(recorder->value_of(unpack_tensor(output)));
      }
      return true;
    };
    std::vector<py::Ref> kept;
    const std::vector<PyObject*> before = state_of(context, kept);
    if (recorder == nullptr) return true;
    if (only_computes(*tracker, record) && state_of(context, kept) == before) return true;
    found_.functions.insert(type);
    PyErr_SetString(PyExc_RuntimeError, "thunder: the program is traced again");
  } catch (...) {
    set_python_error();
    failed_ = recorder_.builder.location();
  }
  return false;
}

bool PythonBackwards::only_computes(interpreter::Tracker& own, const std::function<bool()>& record) {
  tracer::Recorder& recorder = *tracer::recorder_on_top();
  if (effect_depth_ > 0) note_effects();
  const bool full_graph = std::exchange(recorder.data.full_graph, true);
  own.parts().begin_trial();
  recorder.writes.begin_trial();
  edges_.begin_trial();
  bool is_recorded = false;
  try {
    is_recorded = record();
  } catch (...) {
    // The code runs as Python at each backward then, and raises there.
    set_python_error();
  }
  PyErr_Clear();
  recorder.data.full_graph = full_graph;
  const bool reads_nothing = own.parts().end_trial();
  const bool writes_nothing = recorder.writes.end_trial();
  const bool meets_nothing = edges_.end_trial();
  if (effect_depth_ > 0) watch_effects();
  return meets_nothing && writes_nothing && reads_nothing && is_recorded;
}

void PythonBackwards::watch_effects() {
  recorder_.writes.begin_trial();
  edges_.begin_trial();
}

void PythonBackwards::note_effects() {
  const bool writes_nothing = recorder_.writes.end_trial();
  has_effects_ |= !edges_.end_trial() || !writes_nothing;
}

py::Ref PythonBackwards::call_without_effects(const std::function<py::Ref()>& call, const char* what) {
  const std::uint64_t writes = tracker->journal().write_count();
  if (effect_depth_++ == 0) {
    has_effects_ = false;
    watch_effects();
  }
  tracker->parts().begin();
  py::Ref result = call();
  tracker->parts().end();
  if (--effect_depth_ == 0) note_effects();
  has_effects_ |= tracker->journal().write_count() != writes;
  if (!has_effects_) return result;
  PyErr_Clear();
  PyErr_Format(PyExc_NotImplementedError,
               "thunder.jit: not supported inside a jitted function: %s writes to something from outside of it or does "
               "something else besides computing, which a backward would do once more; move that out of it",
               what);
  return nullptr;
}

void PythonBackwards::keep_as_python(PyObject* type, std::span<PyObject* const> arguments, PyObject* result,
                                     PyObject* context_object) {
  const py::Ref context = py::Ref::share(context_object);
  if (recorder_.data.full_graph) refuse(type, "which fullgraph=True excludes");
  if (tracer::recorder_on_top() != &recorder_) refuse(type, "below a transform");
  auto function = std::make_shared<tracer::PythonFunction>();
  function->type = type;
  function->is_tuple = PyTuple_Check(result);
  function->fills_in_zeros = as_function(context).materialize_grads;
  const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(as_function(context).needs_input_grad));
  std::vector<at::Tensor> inputs(count);
  for (std::size_t i = 0; i < count && i < arguments.size(); ++i) {
    if (is_tensor(arguments[i])) inputs[i] = unpack_tensor(arguments[i]);
  }
  std::vector<at::Tensor> results;
  for (PyObject* output : outputs_of(result)) {
    const bool is_result = is_trace_tensor(output);
    function->outputs.push_back(is_result ? static_cast<std::int32_t>(results.size()) : -1);
    if (!is_result) continue;
    if (std::ranges::find(arguments, output) != arguments.end()) refuse(type, "and its forward writes to an argument");
    const at::Tensor& tensor = unpack_tensor(output);
    if (!tensor.requires_grad()) function->constants.push_back(static_cast<std::int32_t>(results.size()));
    results.push_back(tensor);
  }
  {
    const interpreter::NativeScope native;
    const py::Ref make = python_backward_function("make_history");
    const py::Ref outputs = to_tuple(function->outputs);
    const py::Ref constants = to_tuple(function->constants);
    function->history = keep(checked(PyObject_CallFunction(make.get(), "OOOOO", type, outputs.get(), constants.get(),
                                                           function->is_tuple ? Py_True : Py_False,
                                                           function->fills_in_zeros ? Py_True : Py_False)));
  }
  const std::vector<at::Tensor> saved = saved_by(context);
  for (const std::vector<at::Tensor>* tensors :
       std::initializer_list<const std::vector<at::Tensor>*>{&inputs, &saved}) {
    for (const at::Tensor& tensor : *tensors) {
      if (tensor.defined() && is_own_leaf(tensor)) refuse(type, "and it keeps a leaf that is made inside");
    }
  }
  std::vector<tracer::ReadMemory> read;
  for (const at::Tensor& tensor : saved) {
    if (tensor.defined() && tracer::is_trace_tensor(tensor) && !tensor.is_inference()) read.emplace_back(tensor);
  }
  const auto differentiable =
      std::ranges::find_if(results, [](const at::Tensor& each) { return each.requires_grad(); });
  const auto number = static_cast<std::size_t>(differentiable - results.begin());
  const at::Tensor made = tracer::add_python_function_at_all_sizes(recorder_, results, inputs, saved, function);
  applications_.push_back({checked(wrap_tensor(made)), context, std::move(read), std::move(function), number});
}

bool PythonBackwards::is_own_leaf(const at::Tensor& tensor) const {
  const bool is_traced = tracer::is_trace_tensor(tensor) && tensor.requires_grad() && tensor.is_leaf();
  return is_traced && !recorder_.tensors.real_behind(tensor).defined();
}

bool PythonBackwards::keeps(const torch::autograd::Node& node) const {
  return std::ranges::any_of(applications_, [&](const Application& application) {
    return unpack_tensor(application.result.get()).grad_fn().get() == &node;
  });
}

bool PythonBackwards::is_released(const torch::autograd::Node& node) const {
  return std::ranges::any_of(applied_, [&](const Applied& each) {
    return each.node.get() == &node && as_function(each.context).has_freed_buffers != 0;
  });
}

bool PythonBackwards::reads_written(const torch::autograd::Node& node) const {
  const auto found = std::ranges::find_if(applications_, [&](const Application& application) {
    return unpack_tensor(application.result.get()).grad_fn().get() == &node;
  });
  return found != applications_.end() && std::ranges::any_of(found->saved, &tracer::ReadMemory::is_written);
}

py::Ref PythonBackwards::unhooked_result(const Application& application) const {
  const at::Tensor& result = unpack_tensor(application.result.get());
  const ir::ArgumentList& made = tracer::results_of(*application.function, recorder_.trace());
  const ir::ValueId value = *made.at(application.number).get<ir::ValueId>();
  if (value == recorder_.value_of(result)) return application.result;
  at::Tensor unhooked = recorder_.tensors.make(value);
  torch::autograd::impl::set_gradient_edge(unhooked, torch::autograd::impl::gradient_edge(result));
  tracer::trace_impl(unhooked)->state()->adopted = result.grad_fn().get();
  return checked(wrap_tensor(unhooked));
}

bool PythonBackwards::add_effects(interpreter::StructureBuilder& builder) const {
  try {
    for (const Application& application : applications_) {
      const at::Tensor& result = unpack_tensor(application.result.get());
      if (history_of(result) == OutputHistory::kSpent) continue;
      const auto node = result.grad_fn();
      const py::Ref attributes = interpreter::instance_dict(application.context.get());
      const py::Ref before = hooks_on<torch::autograd::PyFunctionPreHook>(node->pre_hooks(), "PyFunctionPreHook");
      const py::Ref after = hooks_on<torch::autograd::PyFunctionPostHook>(node->post_hooks(), "PyFunctionPostHook");
      const bool is_bare = (!attributes || PyDict_Size(attributes.get()) == 0) && PyList_GET_SIZE(before.get()) == 0 &&
                           PyList_GET_SIZE(after.get()) == 0;
      if (is_bare) continue;
      const py::Ref complete = python_backward_function("complete");
      const py::Ref arguments =
          checked(PyTuple_Pack(4, unhooked_result(application).get(), attributes.get(), before.get(), after.get()));
      if (!builder.add_call_effect(complete.get(), arguments.get(), nullptr)) return false;
    }
    const auto keeps_own_leaf = [&](const py::Ref& output) {
      return is_trace_tensor(output.get()) && is_own_leaf(unpack_tensor(output.get()));
    };
    if (!applications_.empty() && std::ranges::any_of(builder.outputs(), keeps_own_leaf)) {
      throw UserError(ErrorKind::kNotImplemented,
                      "thunder.jit: not supported inside a jitted function: a leaf that is made inside and kept for a "
                      "backward that runs as Python");
    }
    return true;
  } catch (const UserError&) {
    set_python_error();
    return false;
  } catch (const PendingError&) {
    return false;
  }
}

}  // namespace thunder::dispatch
