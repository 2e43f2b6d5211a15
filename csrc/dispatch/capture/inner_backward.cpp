#include "dispatch/capture/inner_backward.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "autograd/backward_graph.h"
#include "base/error.h"
#include "dispatch/call/thread_state.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/python_tensor.h"
#include "dispatch/python/python_transform.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/object_parts.h"
#include "tracer/at_other_sizes.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"
#include "transforms/saved_values.h"

namespace thunder::dispatch {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::impl::gradient_edge;

[[noreturn]] void refuse(ErrorKind kind, const std::string& message) { throw UserError(kind, message); }

std::vector<at::Tensor> tensors_of(tracer::Recorder& recorder, py::Borrowed sequence, const char* what) {
  std::vector<at::Tensor> tensors;
  const py::Ref items = py::Ref::steal(PySequence_Fast(sequence, "expected a sequence of tensors"));
  if (!items) throw PendingError();
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    if (item == Py_None) {
      tensors.emplace_back();
    } else if (is_tensor(item)) {
      const at::Tensor& tensor = unpack_tensor(item);
      // A level of torch.func has a graph of its own.
      tensors.push_back(is_functorch_wrapper(tensor) ? tensor : recorder.trace_tensor_of(tensor));
    } else {
      refuse(ErrorKind::kNotImplemented,
             std::string("thunder.jit: backward inside a jitted function: expected tensors as ") + what + ", got a " +
                 Py_TYPE(item)->tp_name);
    }
  }
  return tensors;
}

/// The text by which this version of PyTorch tells that the input at `index` was not used, from a graph made for that.
std::string text_of_unused(std::size_t index) {
  constexpr std::string_view kCommon = "appears to not have been used in the graph";
  const HookScope outside;
  const WithoutFunctionModes unseen;
  std::string text = "One of the differentiated Tensors " + std::string(kCommon) +
                     ". Set allow_unused=True if this is the desired behavior.";
  try {
    const at::Tensor used = at::zeros(at::IntArrayRef()).requires_grad_(), unused = used.detach().requires_grad_();
    const py::Ref root = checked(wrap_tensor(used)), other = checked(wrap_tensor(unused));
    const py::Ref inputs = checked(PyList_New(0));
    for (std::size_t i = 0; i <= index; ++i) PyList_Append(inputs.get(), i < index ? root.get() : other.get());
    const py::Ref function = loaded_function("torch.autograd", "grad");
    static_cast<void>(py::Ref::steal(
        function ? PyObject_CallFunctionObjArgs(function.get(), root.get(), inputs.get(), nullptr) : nullptr));
  } catch (...) {
    set_python_error();
  }
  const py::Ref raised = take_error();
  const py::Ref said = py::Ref::steal(raised ? PyObject_Str(raised.get()) : nullptr);
  const char* content = said ? PyUnicode_AsUTF8(said.get()) : nullptr;
  PyErr_Clear();
  return content != nullptr && std::string_view(content).find(kCommon) != std::string_view::npos ? content : text;
}

[[noreturn]] void refuse_new_leaf() {
  refuse(ErrorKind::kNotImplemented,
         "thunder.jit: not supported inside a jitted function: requires_grad_() on an input that is written to, that "
         "another input is a view of, or that requires no grad afterwards; call it outside");
}

bool is_true(py::Borrowed object) { return object != nullptr && PyObject_IsTrue(object) == 1; }

}  // namespace

/// The arguments of `torch.autograd.graph._engine_run_backward`.
struct InnerBackward::Call {
  std::vector<at::Tensor> roots;
  std::vector<at::Tensor> cotangents;
  std::vector<at::Tensor> inputs;
  bool keep_graph = false;
  bool create_graph = false;
  bool allow_unused = false;
  bool accumulate = false;
};

std::vector<at::Tensor> InnerBackward::derive(tracer::TraceNode& node, std::vector<at::Tensor> cotangents) {
  tracer::Recording* const recording = &node.recorder();
  if (recording == &recorder_) return gradient_.derive(node, std::move(cotangents));
  transforms::InnerGradient& gradient =
      gradients_at_sizes_.try_emplace(recording, static_cast<tracer::Recorder&>(*recording)).first->second;
  return gradient.derive(node, std::move(cotangents));
}

/// Refuses leaves whose gradients have another dtype than they have themselves (`Tensor.grad_dtype`), and guards that.
void InnerBackward::require_plain_gradient(interpreter::Tracker& tracker, const at::Tensor& leaf) {
  static PyObject* const name = PyUnicode_InternFromString("grad_dtype");
  static const py::Ref is_known = loaded_function("torch", "Tensor.grad_dtype");  // torch 2.9 has none
  const py::Ref object = py::Ref::steal(is_known ? wrap_tensor(leaf) : nullptr);
  if (!object) return;
  if (!tracker.tensors().load_tensor_state(object.get(), name)) throw PendingError();
  const py::Ref dtype = py::Ref::steal(PyObject_GetAttrString(object.get(), "dtype"));
  const py::Ref of_gradient = py::Ref::steal(hooks_.attribute(object.get(), name));
  if (!dtype || !of_gradient) throw PendingError();
  if (dtype.get() == of_gradient.get()) return;
  refuse(ErrorKind::kNotImplemented,
         "thunder.jit: not supported inside a jitted function: a gradient of another dtype than its tensor "
         "(grad_dtype); take it outside");
}

void InnerBackward::accumulate(interpreter::Tracker& tracker, const at::Tensor& leaf) {
  static PyObject* const grad = PyUnicode_InternFromString("grad");
  if (!leaf.requires_grad()) refuse_new_leaf();
  require_plain_gradient(tracker, leaf);
  const py::Ref object = py::Ref::steal(wrap_tensor(leaf));
  if (!object || !tracker.tensors().load_tensor_state(object.get(), grad)) throw PendingError();
}

/// `torch.autograd.grad` runs the hooks of what it differentiates by, and retains its gradient.
void InnerBackward::require_no_hooks_behind(interpreter::Tracker& tracker, const at::Tensor& input) {
  if (is_functorch_wrapper(input)) return;
  if (input.is_leaf()) return require_plain_gradient(tracker, input);
  if (!recorder_.tensors.real_behind(input).defined()) return;
  if (input.retains_grad()) {
    refuse(ErrorKind::kNotImplemented,
           "thunder.jit: not supported inside a jitted function: retain_grad() of an input that is no leaf, and "
           "torch.autograd.grad by it; use backward(inputs=...)");
  }
  const py::Ref object = py::Ref::steal(wrap_tensor(input));
  for (const char* state : {"retains_grad", "_backward_hooks"}) {
    const py::Ref name = py::Ref::steal(PyUnicode_InternFromString(state));
    if (!object || !name || !tracker.tensors().load_tensor_state(object.get(), name.get())) throw PendingError();
  }
}

/// `torch.autograd.grad(y.sum(), x)` of inputs of which `y` was computed from `x` goes through what lies between.
void InnerBackward::require_separate_histories(const Call& call) {
  std::unordered_set<std::size_t> reached;
  const auto note_outside = [&](Node& node) {
    if (const auto* outside = dynamic_cast<tracer::OutsideNode*>(&node)) reached.insert(outside->input());
    return false;
  };
  for (const at::Tensor& root : call.roots) {
    static_cast<void>(autograd::any_node_behind(gradient_edge(root), note_outside));
  }
  for (const at::Tensor& target : call.inputs) {
    // A level of torch.func has a graph of its own.
    const at::Tensor real = tracer::is_trace_tensor(target) ? recorder_.tensors.real_behind(target) : at::Tensor();
    if (!real.defined()) continue;
    const auto is_real = [&](const at::Tensor& input) { return input.is_same(real); };
    const auto to =
        std::ranges::find_if(recorder_.tensors.real_inputs(), is_real) - recorder_.tensors.real_inputs().begin();
    for (const std::size_t from : reached) {
      if (from != static_cast<std::size_t>(to)) histories_.add(from, static_cast<std::size_t>(to));
    }
  }
  if (histories_.match(recorder_.tensors.real_inputs())) return;
  refuse(ErrorKind::kNotImplemented,
         "thunder.jit: a gradient inside a jitted function goes through what an input was computed by outside, to "
         "another input; take it outside");
}

PyObject* InnerBackward::run(interpreter::Tracker& tracker, const Call& call) {
  if (torch::autograd::AnomalyMode::is_enabled()) {
    refuse(ErrorKind::kNotImplemented, "thunder.jit: backward under anomaly detection inside of a jitted function");
  }
  autograd::BackwardWalk walk;
  for (std::size_t i = 0; i < call.roots.size(); ++i) {
    const at::Tensor& root = call.roots[i];
    if (!root.requires_grad()) {
      refuse(ErrorKind::kRuntime,
             "element " + std::to_string(i) + " of tensors does not require grad and does not have a grad_fn");
    }
    walk.roots.push_back(gradient_edge(root));
    walk.cotangents.push_back(call.cotangents[i]);
  }
  for (const at::Tensor& input : call.inputs) {
    if (!input.requires_grad()) {
      refuse(ErrorKind::kRuntime, "One of the differentiated Tensors does not require grad");
    }
    if (call.accumulate) {
      input.retain_grad();
    } else {
      require_no_hooks_behind(tracker, input);
    }
    walk.targets.push_back(gradient_edge(input));
    // Where another input is the same tensor, its uses count, too.
    const at::Tensor real = tracer::is_trace_tensor(input) ? recorder_.tensors.real_behind(input) : at::Tensor();
    const py::Ref object = py::Ref::steal(real.defined() ? wrap_tensor(real) : nullptr);
    interpreter::Node* node = object ? tracker.provenance().find(object.get()) : nullptr;
    if (node != nullptr) node->is_written = true;
  }
  require_separate_histories(call);
  walk.has_sizes = tracer::sizes_at_hand(recorder_);
  walk.while_accumulating = tracer::all_strides_at_hand(recorder_);
  walk.accumulate = call.accumulate;
  walk.keep_graph = call.keep_graph;
  walk.create_graph = call.create_graph;
  walk.before_leaf = [&](const at::Tensor& leaf) { accumulate(tracker, leaf); };
  walk.leaf_hooks = [&](const at::Tensor& leaf, at::Tensor& gradient) { hooks_.run_hooks(tracker, leaf, gradient); };
  walk.after_leaf = [&](const at::Tensor& leaf) { hooks_.run_post_accumulate_hooks(tracker, leaf); };
  const std::vector<at::Tensor> gradients = walk.run();
  if (call.accumulate) return PyTuple_New(0);
  py::Ref result = py::Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(call.inputs.size())));
  for (std::size_t i = 0; result && i < call.inputs.size(); ++i) {
    if (!gradients[i].defined() && !call.allow_unused) refuse(ErrorKind::kRuntime, text_of_unused(i));
    PyObject* gradient = gradients[i].defined() ? wrap_tensor(gradients[i]) : Py_NewRef(Py_None);
    if (gradient == nullptr) return nullptr;
    PyTuple_SET_ITEM(result.get(), static_cast<Py_ssize_t>(i), gradient);
  }
  return result.release();
}

void InnerBackward::add_substitutes(interpreter::TrackerOptions& options, interpreter::Tracker& tracker) {
  const py::Ref function = loaded_function("torch.autograd.graph", "_engine_run_backward");
  if (!function) return;
  options.substitute(function.get(), [this, &tracker](PyObject* const* arguments, std::size_t count, PyObject* names,
                                                      PyObject** result) {
    const SubstitutedCall given{arguments, count, names};
    try {
      Call call;
      call.roots = tensors_of(recorder_, given.find(0, "t_outputs"), "outputs");
      call.cotangents = tensors_of(recorder_, given.find(1, "grad_tensors"), "gradients of outputs");
      call.keep_graph = is_true(given.find(2, "keep_graph"));
      call.create_graph = is_true(given.find(3, "create_graph"));
      call.inputs = tensors_of(recorder_, given.find(4, "inputs"), "inputs");
      call.allow_unused = is_true(given.find(5, "allow_unreachable"));
      call.accumulate = is_true(given.find(6, "accumulate_grad"));
      *result = run(tracker, call);
    } catch (const PendingError&) {
      *result = nullptr;
    } catch (...) {
      set_python_error();
      *result = nullptr;
    }
    return *result == nullptr ? -1 : 1;
  });
}

namespace {

/// `retain_grad()` on an input.
bool retain_gradient(interpreter::StructureBuilder& builder, const TorchHooks::InputState& input) {
  static const py::Ref method = loaded_function("torch", "Tensor.retain_grad");
  const at::Tensor& traced = unpack_tensor(input.traced.get());
  if (traced.is_leaf() || !traced.retains_grad()) return true;
  const py::Ref arguments = py::Ref::steal(PyTuple_Pack(1, input.traced.get()));
  return arguments && builder.add_call_effect(method.get(), arguments.get(), nullptr);
}

/// Calls `set` for each attribute that the program has set on a tensor that it made.
template <typename Set>
bool set_attributes(PyObject* tensor, Set&& set) {
  const py::Ref attributes = interpreter::instance_dict(tensor);
  if (!attributes) return PyErr_Occurred() == nullptr;
  PyObject *name, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(attributes.get(), &position, &name, &value)) {
    if (PyUnicode_Check(name) && !set(tensor, PyUnicode_AsUTF8(name), value)) return false;
  }
  return true;
}

}  // namespace

/// An input on which the program calls `requires_grad_()` requires grad from the begin of the computation, with the
/// value that it has there.
void InnerBackward::require_leaves(std::span<const py::Ref> outputs) const {
  std::unordered_set<torch::autograd::Node*> changed;
  for (const TorchHooks::InputState& input : hooks_.states()) {
    const at::Tensor& traced = unpack_tensor(input.traced.get());
    const at::Tensor& real = unpack_tensor(input.real.get());
    // Views that other inputs are follow their base.
    const auto is_view_of_it = [&](const TorchHooks::InputState& other) {
      const at::Tensor& view = unpack_tensor(other.real.get());
      return view.is_view() && view._base().is_same(real);
    };
    const bool is_changed = traced.requires_grad() != real.requires_grad();
    if (is_changed && std::ranges::any_of(hooks_.states(), is_view_of_it)) refuse_new_leaf();
    if (real.requires_grad()) continue;
    if (traced.requires_grad() && !tracer::is_written(traced)) continue;
    if (const auto node = torch::autograd::impl::try_get_grad_accumulator(traced)) changed.insert(node.get());
  }
  if (changed.empty()) return;
  for (const py::Ref& output : outputs) {
    if (!is_tensor(output.get()) || !unpack_tensor(output.get()).requires_grad()) continue;
    const at::Tensor& tensor = unpack_tensor(output.get());
    if (tensor.is_leaf()) continue;
    const auto is_changed = [&](torch::autograd::Node& node) { return changed.contains(&node); };
    if (autograd::any_node_behind(gradient_edge(tensor), is_changed)) refuse_new_leaf();
  }
}

/// Refuses writes to inputs that retain gradients: that would move to the new value, which results are computed past.
void InnerBackward::require_nothing_retained(interpreter::Tracker& tracker) const {
  static PyObject* const state = PyUnicode_InternFromString("retains_grad");
  for (const auto& [position, value] : recorder_.memory.inputs_with_new_history()) {
    const at::Tensor& written = recorder_.tensors.inputs()[position];
    const at::Tensor real = recorder_.tensors.real_behind(written);
    if (!real.defined() || real.is_leaf()) continue;
    const py::Ref object = py::Ref::steal(wrap_tensor(written));
    if (!object || !tracker.tensors().load_tensor_state(object.get(), state)) throw PendingError();
    if (real.retains_grad()) {
      refuse(ErrorKind::kNotImplemented,
             "thunder.jit: not supported inside a jitted function: a write to an input that retains its gradient");
    }
  }
}

/// Whether what was written to an input takes part in autograd, but is not among the histories that a call gives.
bool InnerBackward::has_unknown_history(const at::Tensor& traced) const {
  if (!tracer::is_written(traced) || !traced.requires_grad() || traced.is_leaf()) return false;
  if (dynamic_cast<tracer::OutsideNode*>(traced.grad_fn().get()) != nullptr) return false;
  return std::ranges::none_of(recorder_.memory.inputs_with_new_history(), [&](const auto& known) {
    return recorder_.tensors.inputs()[known.first].is_same(traced);
  });
}

bool InnerBackward::add_effects(interpreter::StructureBuilder& builder) const {
  static PyObject* const set_attribute = interpreter::builtin_object("setattr");
  const auto set = [&](PyObject* tensor, const char* name, PyObject* value) {
    const py::Ref arguments = py::Ref::steal(Py_BuildValue("(OsO)", tensor, name, value));
    return arguments && builder.add_call_effect(set_attribute, arguments.get(), nullptr);
  };
  for (const TorchHooks::InputState& input : hooks_.states()) {
    const at::Tensor& traced = unpack_tensor(input.traced.get());
    if (input.knows_grad) {
      const py::Ref now = py::Ref::steal(wrap_tensor(traced.mutable_grad()));  // grad() warns of non-leaves
      if (!now) return false;
      const bool is_changed = now.get() != input.grad.get();
      if (is_changed && traced.sizes() != unpack_tensor(input.real.get()).sizes()) {
        refuse(ErrorKind::kNotImplemented,
               "thunder.jit: the gradient of an input that is resized is set; do it outside");
      }
      if (is_changed && !set(input.traced.get(), "grad", now.get())) return false;
    }
    const bool required = unpack_tensor(input.real.get()).requires_grad();
    if (required && !traced.requires_grad() && !set(input.traced.get(), "requires_grad", Py_False)) return false;
    if (unpack_tensor(input.real.get()).is_leaf() && required && has_unknown_history(traced)) {
      refuse(ErrorKind::kNotImplemented,
             "thunder.jit: not supported inside a jitted function: detach_() of a leaf that is written to afterwards");
    }
    if (!retain_gradient(builder, input)) return false;
  }
  require_leaves(builder.outputs());
  for (std::size_t i = 0; i < builder.outputs().size(); ++i) {
    const py::Ref output = builder.outputs()[i];
    if (!is_tensor(output.get())) continue;  // a number
    if (!set_attributes(output.get(), set)) return false;
    const at::Tensor& gradient_of_output = unpack_tensor(output.get()).mutable_grad();  // grad() warns of non-leaves
    if (!gradient_of_output.defined()) continue;
    const py::Ref gradient = py::Ref::steal(wrap_tensor(gradient_of_output));
    if (!gradient || !set(output.get(), "grad", gradient.get())) return false;
  }
  return true;
}

bool InnerBackward::reads_written(Node& node, const PythonBackwards& functions) {
  tracer::TraceNode* own = tracer::as_trace_node(&node);
  if (own != nullptr) return gradient_.reads_written(*own);
  if (functions.is_released(node)) return false;
  return recorder_.gradients.reads_written(node) || functions.reads_written(node);
}

namespace {

/// Whether each way from an edge to leaves, to what is outside and to autograd functions goes through one of `nodes`.
bool goes_through(const Edge& edge, const std::unordered_set<const Node*>& nodes) {
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> pending{edge.function.get()};
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    if (nodes.contains(node) || !seen.insert(node).second) continue;
    if (dynamic_cast<const tracer::TraceNode*>(node) == nullptr) return false;
    for (const Edge& next : node->next_edges()) {
      if (next.is_valid()) pending.push_back(next.function.get());
    }
  }
  return true;
}

/// Whether another result lies behind one: a gradient by way of it ends there.
bool is_computed_from_another(const at::Tensor& result, std::span<const py::Ref> outputs) {
  std::unordered_set<const Node*> others;
  for (const py::Ref& output : outputs) {
    if (!is_tensor(output.get()) || unpack_tensor(output.get()).is_same(result)) continue;
    const at::Tensor& other = unpack_tensor(output.get());
    if (other.requires_grad() && !other.is_leaf()) others.insert(gradient_edge(other).function.get());
  }
  return autograd::any_node_behind(gradient_edge(result), [&](const Node& node) { return others.contains(&node); });
}

}  // namespace

std::unordered_set<const Node*> InnerBackward::find_overwritten(std::span<const py::Ref> outputs,
                                                                const PythonBackwards& functions,
                                                                ir::SourceLocation& failed) {
  std::unordered_set<const Node*> found;
  if (!recorder_.writes.has_writes()) return found;
  const auto require_raising = [&](const at::Tensor& tensor, bool is_output) {
    if (!tracer::is_trace_tensor(tensor) || !tensor.requires_grad() || tensor.is_leaf()) return;
    std::vector<Node*> reading;
    bool all_raise = is_output;
    const auto note = [&](Node& node) {
      if (!reads_written(node, functions)) return false;
      reading.push_back(&node);
      const tracer::TraceNode* own = tracer::as_trace_node(&node);
      all_raise = all_raise && own != nullptr && !own->watches_hidden_write() &&
                  transforms::saves_written(*own, recorder_.trace());
      return false;
    };
    static_cast<void>(autograd::any_node_behind(gradient_edge(tensor), note));
    if (reading.empty()) return;
    found.insert(reading.begin(), reading.end());
    const bool raises = all_raise && goes_through(gradient_edge(tensor), found);
    if (raises && !is_computed_from_another(tensor, outputs)) return;
    const tracer::TraceNode* own = tracer::as_trace_node(reading.front());
    if (own != nullptr) failed = own->symbol().location;
    refuse(ErrorKind::kNotImplemented,
           "thunder.jit: the program returns or keeps a tensor with a history, whose backward (" +
               tensor.grad_fn()->name() + ", through " + reading.front()->name() +
               ") needs a tensor that is written to after it was used: eager code raises an error in parts of that "
               "backward, or, after a write through .data, computes with what was written; detach() what is kept");
  };
  for (const py::Ref& output : outputs) {
    if (is_tensor(output.get())) require_raising(unpack_tensor(output.get()), /*is_output=*/true);
  }
  for (const TorchHooks::InputState& input : hooks_.states()) {
    require_raising(unpack_tensor(input.traced.get()), /*is_output=*/false);
  }
  return found;
}

}  // namespace thunder::dispatch
