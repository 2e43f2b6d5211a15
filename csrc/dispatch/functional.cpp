#include "dispatch/functional.h"

#include <ATen/ops/_to_copy.h>
#include <ATen/ops/contiguous.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/backward_graph.h"
#include "base/error.h"
#include "bridge/convert.h"
#include "dispatch/call/specialization.h"
#include "dispatch/capture/custom_functions.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/gil.h"
#include "dispatch/python/opaque_backward.h"
#include "dispatch/python/python_tensor.h"
#include "dispatch/python/trace_object.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/python/python_ref.h"
#include "operators/facts.h"
#include "tracer/evaluate.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"
#include "tracer/region.h"
#include "tracer/size_shadows.h"
#include "tracer/trace_session.h"
#include "transforms/autocast.h"
#include "transforms/functorch_layer.h"
#include "transforms/grad.h"
#include "transforms/replay.h"

namespace thunder::dispatch {
namespace {

template <typename Function>
PyObject* guarded(const Function& function) {
  try {
    return py::Ref(function()).release();
  } catch (const PendingError&) {
    return nullptr;
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

/// The items of a list or tuple, read by `read(item)`.
template <typename Read>
auto read_list(PyObject* list, Read&& read) {
  const py::Ref items = checked(PySequence_Fast(list, "expected a list"));
  std::vector<decltype(read(list))> result;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    result.push_back(read(PySequence_Fast_GET_ITEM(items.get(), i)));
  }
  return result;
}

at::Tensor read_tensor(PyObject* object) {
  if (object == Py_None) return {};
  if (!is_tensor(object)) {
    throw UserError(ErrorKind::kType,
                    std::string("expected a tensor, got an object of type '") + Py_TYPE(object)->tp_name + "'");
  }
  return unpack_tensor(object);
}

const ir::Trace& read_trace(PyObject* object) {
  const ir::Trace* trace = trace_in(object);
  if (trace == nullptr) throw UserError(ErrorKind::kType, "expected a trace");
  return *trace;
}

py::Ref to_list(const std::vector<at::Tensor>& tensors) {
  py::Ref list = checked(PyList_New(0));
  for (const at::Tensor& tensor : tensors) {
    const py::Ref item = tensor.defined() ? checked(wrap_tensor(tensor)) : py::Ref::share(Py_None);
    if (PyList_Append(list.get(), item.get()) < 0) throw PendingError();
  }
  return list;
}

transforms::RecordedInputs describe(std::vector<at::Tensor> tensors) {
  transforms::RecordedInputs inputs;
  for (const at::Tensor& tensor : tensors) inputs.types.push_back(ir::make_type(bridge::type_of(tensor)));
  inputs.data = tracer::data_source(std::move(tensors));
  return inputs;
}

/// record(name, function, inputs, differentiate) -> (trace, captures)
///
/// Calls `function` with a list of trace tensors for `inputs`, and takes the list of tensors that it returns for the
/// outputs. `captures` are the tensors that it took from around itself.
PyObject* record(PyObject*, PyObject* arguments) {
  const char* name;
  PyObject *function, *inputs;
  int differentiate;
  if (PyArg_ParseTuple(arguments, "sOOp", &name, &function, &inputs, &differentiate) == 0) return nullptr;
  return guarded([&] {
    RecordedPart part(/*for_autocast=*/differentiate == 0);
    tracer::Region region(name, /*captures_require_grad=*/differentiate == 0);
    std::vector<at::Tensor> trace_tensors;
    for (const at::Tensor& tensor : read_list(inputs, read_tensor)) {
      ir::TensorType type = bridge::type_of(tensor);
      if (differentiate != 0) type.requires_grad = true;
      trace_tensors.push_back(region.add_input(tensor, std::move(type)));
    }
    const py::Ref seen = to_list(trace_tensors);
    py::Ref returned;
    {
      const tracer::RecordTop recording(region.recorder());
      const c10::AutoGradMode gradients(differentiate != 0 || c10::GradMode::is_enabled());
      returned = checked(PyObject_CallOneArg(function, seen.get()));
    }
    const std::vector<at::Tensor> outputs = read_list(returned.get(), read_tensor);
    // PyTorch's transform refuses what writes to captures, or gives it a gradient; and it runs the hooks of arguments.
    const bool has_hooks = std::ranges::any_of(
        trace_tensors, [](const at::Tensor& tensor) { return !torch::autograd::impl::hooks(tensor).empty(); });
    if (differentiate != 0 && (region.writes_captures() || has_hooks)) part.ask_for_live_transforms();
    const py::Ref trace = checked(make_trace_object(region.finish(outputs)));
    return checked(PyTuple_Pack(2, trace.get(), to_list(region.captures()).get()));
  });
}

/// replay(trace, inputs) -> outputs: calls the operations of `trace`; None for an output that the trace has not.
PyObject* replay(PyObject*, PyObject* arguments) {
  PyObject *trace, *inputs;
  if (PyArg_ParseTuple(arguments, "OO", &trace, &inputs) == 0) return nullptr;
  return guarded([&] {
    const interpreter::NativeScope native;
    return to_list(transforms::replay(read_trace(trace), read_list(inputs, read_tensor)));
  });
}

/// PyTorch registers some of its batching rules when `vmap` is first used.
void load_batching_rules() {
  // Without an initializer that runs Python: another thread would wait for its end with the GIL held.
  static bool is_loaded = false;
  if (is_loaded) return;
  const tracer::SuspendRecording suspended;
  const py::Ref module = checked(py::import_module("torch._functorch.vmap"));
  const py::Ref ignored = checked(PyObject_CallMethod(module.get(), "lazy_load_decompositions", nullptr));
  is_loaded = true;
}

/// autocast(trace, inputs, device, dtype) -> trace
PyObject* autocast(PyObject*, PyObject* arguments) {
  PyObject *trace, *inputs, *device, *dtype;
  if (PyArg_ParseTuple(arguments, "OOO!O!", &trace, &inputs, &THPDeviceType, &device, &THPDtypeType, &dtype) == 0) {
    return nullptr;
  }
  return guarded([&] {
    const interpreter::NativeScope native;
    const transforms::AutocastOptions options{reinterpret_cast<THPDevice*>(device)->device.type(),
                                              reinterpret_cast<THPDtype*>(dtype)->scalar_type};
    const transforms::RecordedInputs described = describe(read_list(inputs, read_tensor));
    return checked(make_trace_object(transforms::autocast(read_trace(trace), described, options)));
  });
}

/// Whether what is recorded now may be differentiated: it is inside of another transform, or of a program that reads
/// something that requires grad.
bool may_be_differentiated() {
  tracer::Recorder* around = tracer::recorder_on_top();
  if (around == nullptr) return false;
  const ir::Trace& trace = around->trace();
  return around->may_have_tangents() || std::ranges::any_of(trace.inputs, [&](ir::ValueId input) {
           const ir::TensorType* type = trace.tensor_type(input);
           return type != nullptr && type->requires_grad;
         });
}

/// vjp(trace, count) -> (forward, backward, number of outputs, positions of the outputs that take a cotangent)
///
/// Only the first `count` outputs of `trace` take a cotangent.
PyObject* vjp(PyObject*, PyObject* arguments) {
  PyObject* trace;
  Py_ssize_t count;
  if (PyArg_ParseTuple(arguments, "On", &trace, &count) == 0) return nullptr;
  return guarded([&] {
    const interpreter::NativeScope native;
    const bool again = may_be_differentiated();
    const tracer::SuspendRecording suspended;
    transforms::ForwardBackward parts =
        transforms::forward_and_backward(read_trace(trace), static_cast<std::size_t>(count), again);
    py::Ref positions = checked(PyList_New(0));
    for (const std::size_t position : parts.differentiable_outputs) {
      const py::Ref number = checked(PyLong_FromSize_t(position));
      if (PyList_Append(positions.get(), number.get()) < 0) throw PendingError();
    }
    const py::Ref forward = checked(make_trace_object(std::move(parts.forward)));
    const py::Ref backward = checked(make_trace_object(std::move(parts.backward)));
    return checked(Py_BuildValue("(OOnO)", forward.get(), backward.get(), static_cast<Py_ssize_t>(parts.output_count),
                                 positions.get()));
  });
}

/// Whether a trace holds for inputs of any strides, and gives results whose strides follow from theirs.
bool is_for_all_strides(const ir::Trace& trace) {
  using operators::Fact;
  return std::ranges::none_of(trace.symbols, [](const ir::BoundSymbol& symbol) {
    return operators::facts_of(*symbol.op).has_any(Fact::kReadsStrides | Fact::kRaisesForStrides);
  });
}

/// `cotangent` with the dtype that a backward trace was derived for, and with `lays_out` the order of dimensions in
/// memory.
at::Tensor as_expected(const at::Tensor& cotangent, const ir::TensorType& type, std::size_t position, bool lays_out) {
  const std::vector<std::int64_t> sizes = bridge::hints(type.sizes);
  if (!cotangent.sizes().equals(sizes)) {
    const std::string at = "[" + std::to_string(position) + "]";
    throw UserError(ErrorKind::kRuntime, "Mismatch in shape: grad_output" + at + " has a shape of torch.Size(" +
                                             c10::str(cotangent.sizes()) + ") and output" + at +
                                             " has a shape of torch.Size(" + c10::str(c10::IntArrayRef(sizes)) + ").");
  }
  at::Tensor result = cotangent.scalar_type() == bridge::to_torch(type.dtype)
                          ? cotangent
                          : at::_to_copy(cotangent, at::TensorOptions(bridge::to_torch(type.dtype)));
  const std::vector<std::int64_t> strides = bridge::hints(type.strides);
  if (!lays_out || result.strides().equals(strides)) return result;
  std::vector<std::int64_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) {
    return strides[static_cast<std::size_t>(a)] > strides[static_cast<std::size_t>(b)];
  });
  std::vector<std::int64_t> back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return result.permute(order).contiguous().permute(back);
}

/// pull_back(backward, saved, cotangents) -> gradients, None for those that are zero
PyObject* pull_back(PyObject*, PyObject* arguments) {
  PyObject *trace, *saved, *cotangents;
  if (PyArg_ParseTuple(arguments, "OOO", &trace, &saved, &cotangents) == 0) return nullptr;
  return guarded([&] {
    const interpreter::NativeScope native;
    const ir::Trace& backward = read_trace(trace);
    std::vector<at::Tensor> inputs = read_list(saved, read_tensor);
    const std::size_t saved_count = inputs.size();
    const bool lays_out = !is_for_all_strides(backward);
    for (const at::Tensor& cotangent : read_list(cotangents, read_tensor)) {
      const ir::TensorType* type = backward.tensor_type(backward.inputs.at(inputs.size()));
      inputs.push_back(as_expected(cotangent, *type, inputs.size() - saved_count, lays_out));
    }
    return to_list(transforms::replay(backward, inputs));
  });
}

PyObject* is_tracing_now(PyObject*, PyObject*) { return PyBool_FromLong(static_cast<long>(is_tracing())); }

PyObject* runs_live(PyObject*, PyObject*) { return PyBool_FromLong(static_cast<long>(transforms_are_live())); }

/// Whether sizes are symbols where the program is: not in a part of it that is a trace of its own, nor in a level of
/// `torch.func`. In inference mode, which PyTorch's `grad` leaves while the function runs, they are to be numbers.
bool has_symbols_now() {
  const auto* shadows = static_cast<const tracer::SizeShadows*>(tracer::TraceSession::current().size_reads);
  const tracer::Recorder* recorder = tracer::recorder_on_top();
  return shadows != nullptr && recorder != nullptr && shadows->is_of_program(*recorder) &&
         !transforms::is_any_layer_active() && !c10::InferenceMode::is_enabled();
}

PyObject* has_symbols(PyObject*, PyObject*) { return PyBool_FromLong(static_cast<long>(has_symbols_now())); }

/// depends_on_others(tensor, leaves) -> whether it requires grad for more than what was computed of these.
PyObject* depends_on_others(PyObject*, PyObject* arguments) {
  PyObject *tensor, *leaves;
  if (PyArg_ParseTuple(arguments, "OO", &tensor, &leaves) == 0) return nullptr;
  return guarded([&] {
    const at::Tensor made = read_tensor(tensor);
    const std::vector<at::Tensor> own = read_list(leaves, read_tensor);
    const auto is_other = [&](torch::autograd::Node& node) {
      const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node);
      if (leaf == nullptr) return node.next_edges().empty();
      return std::ranges::none_of(own, [&](const at::Tensor& each) { return each.is_same(leaf->variable); });
    };
    const bool depends =
        made.requires_grad() && autograd::any_node_behind(torch::autograd::impl::gradient_edge(made), is_other);
    return checked(PyBool_FromLong(static_cast<long>(depends)));
  });
}

/// Null with an exception set. The program does not see what is imported.
py::Ref function_of_ours(const char* module_name, const char* name) {
  const interpreter::NativeScope native;
  const tracer::SuspendRecording suspended;
  const py::Ref module = py::Ref::steal(py::import_module(module_name));
  return py::Ref::steal(module ? PyObject_GetAttrString(module.get(), name) : nullptr);
}

PyMethodDef transform_functions[] = {
    {"is_tracing", is_tracing_now, METH_NOARGS, "Whether this thread is tracing a jitted function."},
    {"runs_live", runs_live, METH_NOARGS, "Whether transforms are to run as PyTorch's."},
    {"record", record, METH_VARARGS, "record(name, function, inputs, differentiate) -> (trace, captures)"},
    {"has_symbols", has_symbols, METH_NOARGS, "Whether sizes are symbols in what is traced now."},
    {"depends_on_others", depends_on_others, METH_VARARGS, "depends_on_others(tensor, leaves) -> bool"},
    {"replay", replay, METH_VARARGS, "replay(trace, inputs) -> outputs"},
    {"autocast", autocast, METH_VARARGS, "autocast(trace, inputs, device, dtype) -> trace"},
    {"vjp", vjp, METH_VARARGS, "vjp(trace, count) -> (forward, backward, number of outputs, differentiable outputs)"},
    {"pull_back", pull_back, METH_VARARGS, "pull_back(backward, saved, cotangents) -> gradients"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef functional_module = {PyModuleDef_HEAD_INIT,
                                 "thunder._C.functional",
                                 nullptr,
                                 -1,
                                 transform_functions,
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 nullptr};

/// `torch._C._functorch._add_batch_dim`, which is no operation: it reads all sizes, of which the function sees some.
int add_batch_dim(PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
  auto* shadows = static_cast<tracer::SizeShadows*>(tracer::TraceSession::current().size_reads);
  static PyObject* const theirs = loaded_function("torch._C._functorch", "_add_batch_dim").release();
  if (shadows == nullptr || theirs == nullptr) return 0;
  *result = guarded([&] {
    const interpreter::NativeScope native;
    const tracer::SizeShadows::Inside inside(*shadows);
    // The first one is what pybind binds its functions to.
    py::Ref batched = checked(PyObject_Vectorcall(theirs, arguments + 1, count - 1, names));
    if (is_tensor(batched.get())) shadows->note_layer(unpack_tensor(batched.get()));
    return batched;
  });
  return *result == nullptr ? -1 : 1;
}

/// Lets a function of ours stand for one of `torch.func` where sizes are symbols.
void add_at_symbols(interpreter::TrackerOptions& options, const char* theirs, const char* ours) {
  const py::Ref function = loaded_function("torch._functorch.eager_transforms", theirs);
  if (!function) return;
  options.substitute(function.get(),
                     [ours](PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
                       if (count == 0 || !has_symbols_now()) return 0;  // none: code in C calls it
                       const py::Ref stand_in = function_of_ours("thunder.transforms.functional.in_program", ours);
                       *result = stand_in ? PyObject_Vectorcall(stand_in.get(), arguments, count, names) : nullptr;
                       return *result == nullptr ? -1 : 1;
                     });
}

}  // namespace

void add_functional_substitutes(interpreter::TrackerOptions& options) {
  if (const py::Ref legacy = loaded_function("torch._vmap_internals", "_vmap")) {
    // Its batched tensors are told by a key that trace tensors have, too.
    options.substitute(legacy.get(),
                       [](PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
                         static PyObject* const ours =
                             function_of_ours("thunder.transforms.functional.batching", "vmap_or_none").release();
                         *result = ours == nullptr ? nullptr : PyObject_Vectorcall(ours, arguments, count, names);
                         return *result == nullptr ? -1 : 1;
                       });
  }
  add_at_symbols(options, "grad_and_value_impl", "grad_and_value_of_torch");
  add_at_symbols(options, "vjp", "vjp_of_torch");
  if (const py::Ref batch = loaded_function("torch._C._functorch", "_add_batch_dim")) {
    options.substitute(batch.get(), add_batch_dim);
  }
  const py::Ref function = loaded_function("torch._functorch.vmap", "lazy_load_decompositions");
  if (!function) return;
  options.substitute(function.get(), [](PyObject* const*, std::size_t, PyObject*, PyObject** result) {
    *result = guarded([] {
      const interpreter::NativeScope native;
      load_batching_rules();
      return py::Ref::share(Py_None);
    });
    return *result == nullptr ? -1 : 1;
  });
}

int init_functional(PyObject* module) {
  make_opaque_backwards_in_python();
  tracer::forget_python_error = [] {
    const GilHold gil;
    PyErr_Clear();
  };
  tracer::load_shapes_of_collectives = [] {
    const GilHold gil;
    const interpreter::NativeScope native;
    const tracer::SuspendRecording suspended;
    if (!py::Ref::steal(py::import_module("torch.distributed._functional_collectives"))) PyErr_Clear();
  };
  py::Ref functional = py::Ref::steal(PyModule_Create(&functional_module));
  return functional && PyModule_AddObjectRef(module, "functional", functional.get()) == 0 ? 0 : -1;
}

}  // namespace thunder::dispatch
