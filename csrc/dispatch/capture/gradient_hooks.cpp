#include "dispatch/capture/gradient_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "autograd/backward_graph.h"
#include "base/error.h"
#include "dispatch/call/output_plan.h"
#include "dispatch/call/thread_state.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/python/backward_module.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/loop/interpret.h"
#include "interpreter/loop/interpreted_getter.h"
#include "interpreter/loop/native_scope.h"
#include "ir/symbol_values.h"
#include "tracer/python_function.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"

namespace thunder::dispatch {
namespace {

using torch::autograd::Node;

[[noreturn]] void refuse(const std::string& message) {
  throw UserError(ErrorKind::kNotImplemented, "thunder.jit: not supported inside a jitted function: " + message);
}

/// Calls a C++ function from Python: what it calls in turn is interpreted.
PyObject* call_function(PyObject* capsule, PyObject* /*none*/) {
  const auto* function = static_cast<std::function<void()>*>(PyCapsule_GetPointer(capsule, nullptr));
  try {
    (*function)();
    Py_RETURN_NONE;
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

bool interpret(std::function<void()> function, interpreter::Tracker& tracker) {
  static PyMethodDef method = {"record_hooks", call_function, METH_NOARGS, nullptr};
  const py::Ref capsule = py::Ref::steal(PyCapsule_New(&function, nullptr, nullptr));
  const py::Ref callable = py::Ref::steal(capsule ? PyCFunction_New(&method, capsule.get()) : nullptr);
  const py::Ref none = py::Ref::steal(PyTuple_New(0));
  if (!callable || !none) return false;
  return static_cast<bool>(py::Ref::steal(interpreter::interpret(callable.get(), none.get(), nullptr, &tracker)));
}

bool is_released(Node& node) {
  const tracer::TraceNode* own = tracer::as_trace_node(&node);
  return own != nullptr && own->is_released();
}

}  // namespace

int GradientHooks::register_hook(const char* method, PyObject* function, PyObject* const* arguments, std::size_t count,
                                 PyObject* names, PyObject** result) {
  // Who is told of the call first calls it itself then.
  if (count == 0 || !is_tensor(arguments[0]) || is_told_of_operations(arguments[0])) return 0;
  const at::Tensor& tensor = unpack_tensor(arguments[0]);
  // Hooks in C (`list.append`) are observed where a function in Python calls them.
  std::vector<PyObject*> given(arguments, arguments + count + (names == nullptr ? 0 : PyTuple_GET_SIZE(names)));
  std::vector<py::Ref> observed;
  for (std::size_t i = 1; i < given.size(); ++i) {
    if (PyCallable_Check(given[i]) == 0 || interpreter::is_called_in_python(given[i])) continue;
    observed.push_back(interpreter::interpreted_call(given[i]));
    if (!observed.back()) return -1;
    given[i] = observed.back().get();
  }
  const interpreter::NativeScope native;  // it counts hooks in a global
  *result = PyObject_Vectorcall(function, given.data(), count, names);
  if (*result == nullptr) return -1;
  if (!tracer::is_trace_tensor(tensor)) return 1;
  const bool is_outside = recorder_.tensors.real_behind(tensor).defined();
  Hooked hooked{tensor.grad_fn(), recorder_.builder.location(), py::Ref::share(arguments[0]), method, is_outside};
  if (is_outside) {
    on_inputs_.push_back(std::move(hooked));
  } else if (hooked.node != nullptr) {
    hooked_.push_back(std::move(hooked));
  }
  return 1;
}

void GradientHooks::add_substitutes(interpreter::TrackerOptions& options) {
  for (const char* method : {"register_hook", "register_post_accumulate_grad_hook"}) {
    const py::Ref function = loaded_function("torch", std::string("Tensor.") + method);
    if (!function) continue;
    options.substitute(function.get(),
                       [this, method, own = function.get()](PyObject* const* arguments, std::size_t count,
                                                            PyObject* names, PyObject** result) {
                         return register_hook(method, own, arguments, count, names, result);
                       });
  }
}

void GradientHooks::record_all() {
  std::unordered_set<Node*> done;
  for (const Hooked& hooked : hooked_) {
    if (!done.insert(hooked.node.get()).second || is_released(*hooked.node)) continue;
    recorder_.gradients.record_hooks(*hooked.node);
  }
}

void GradientHooks::set_all_apart() {
  for (const Hooked& hooked : hooked_) {
    if (is_released(*hooked.node)) continue;
    current_ = hooked.location;
    if (recorder_.data.full_graph) {
      refuse(
          "Tensor.register_hook: expected a hook that only computes a gradient, got one that looks at data or does "
          "something besides, which fullgraph=True excludes");
    }
    if (recorder_.gradients.set_apart(unpack_tensor(hooked.tensor.get()))) continue;
    refuse(
        "Tensor.register_hook: expected a hook that only computes a gradient, got one that looks at data or does "
        "something besides, on a tensor that is written to, or inside of a checkpoint; register it on a clone");
  }
}

bool GradientHooks::record(interpreter::Tracker& tracker) {
  if (hooked_.empty()) return true;
  const auto record = [&] { return interpret([this] { record_all(); }, tracker); };
  if (backwards_.leaves_hooks()) {
    try {
      set_all_apart();
      return true;
    } catch (const UserError&) {
      set_python_error();
    }
  } else {
    if (backwards_.only_computes(tracker, record)) return true;
    trace_again();
  }
  add_location(current_);
  return false;
}

void GradientHooks::trace_again() {
  backwards_.leave_hooks();
  PyErr_SetString(PyExc_RuntimeError, "thunder: the program is traced again");
}

bool GradientHooks::leave_those_of_outputs(std::span<const py::Ref> outputs) {
  if (backwards_.leaves_hooks() || recorder_.data.full_graph) return true;
  const auto is_hooked = [&](const py::Ref& output) {
    return std::ranges::any_of(hooked_, [&](const Hooked& hooked) {
      return hooked.tensor.get() == output.get() && !is_released(*hooked.node);
    });
  };
  if (std::ranges::none_of(outputs, is_hooked)) return true;
  trace_again();
  return false;
}

void GradientHooks::require_on_computed(std::span<const py::Ref> outputs) const {
  if (hooked_.empty()) return;
  const auto hooked_at = [this](const at::Tensor& tensor) {
    return std::ranges::find_if(hooked_, [&](const Hooked& hooked) { return hooked.node == tensor.grad_fn(); });
  };
  for (const py::Ref& output : outputs) {
    if (!is_tensor(output.get())) continue;  // a number
    at::Tensor tensor = unpack_tensor(output.get());
    bool is_hooked = false;
    bool is_all_released = true;
    while (tracer::is_trace_tensor(tensor) && view_of(tensor) != nullptr) {
      if (const auto hooked = hooked_at(tensor); hooked != hooked_.end()) {
        is_hooked = true;
        is_all_released = is_all_released && is_released(*hooked->node);
      }
      tensor = at::Tensor(view_of(tensor)->parent);
    }
    // A backward that comes by a view of an input runs the hook, whatever another one has released.
    if (is_hooked && (!is_all_released || recorder_.tensors.real_behind(tensor).defined())) {
      refuse("Tensor.register_hook on a view that is returned or stored: register it outside");
    }
  }
}

at::Tensor GradientHooks::trace_tensor_for(const Hooked& hooked) const {
  const at::Tensor& tensor = unpack_tensor(hooked.tensor.get());
  at::Tensor made = recorder_.tensors.make(recorder_.value_of(tensor));
  torch::autograd::impl::set_gradient_edge(made, torch::autograd::impl::gradient_edge(tensor));
  tracer::trace_impl(made)->state()->adopted = tracer::trace_impl(tensor)->state()->adopted;
  return made;
}

bool GradientHooks::add_effects(interpreter::StructureBuilder& builder) const {
  std::unordered_set<PyObject*> done[2];  // a tensor has one dict for the hooks of each method
  const auto add = [&](const Hooked& hooked) {
    const bool is_leaf_hook = std::string_view(hooked.method) != "register_hook";
    if (!done[is_leaf_hook].insert(hooked.tensor.get()).second) return true;
    const interpreter::NativeScope native;
    const py::Ref dict = checked(
        PyObject_GetAttrString(hooked.tensor.get(), is_leaf_hook ? "_post_accumulate_grad_hooks" : "_backward_hooks"));
    if (dict.get() == Py_None || PyDict_Size(dict.get()) == 0) return true;
    if (!hooked.is_outside && !unpack_tensor(hooked.tensor.get()).requires_grad()) {
      refuse(std::string("Tensor.") + hooked.method + " on a tensor that is detached in place afterwards");
    }
    if (tracer::is_written(unpack_tensor(hooked.tensor.get()))) {
      refuse(std::string("Tensor.") + hooked.method + " on a tensor that is written to; register it on a clone");
    }
    const py::Ref hooks = checked(hooks_in(dict.get()).release());
    // Each call registers those in C themselves.
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(hooks.get()); ++i) {
      PyList_SetItem(hooks.get(), i, interpreter::behind_stand_in(PyList_GET_ITEM(hooks.get(), i)).release());
    }
    const py::Ref name = checked(PyUnicode_InternFromString(hooked.method));
    const py::Ref target = hooked.is_outside ? hooked.tensor : checked(wrap_tensor(trace_tensor_for(hooked)));
    const py::Ref arguments = checked(PyTuple_Pack(3, target.get(), name.get(), hooks.get()));
    return builder.add_call_effect(python_backward_function("register").get(), arguments.get(), nullptr);
  };
  try {
    if (!std::ranges::all_of(on_inputs_, add)) return false;
    if (!backwards_.leaves_hooks()) return true;
    return std::ranges::all_of(hooked_, [&](const Hooked& hooked) { return is_released(*hooked.node) || add(hooked); });
  } catch (const PendingError&) {
    return false;
  }
}

void GradientHooks::require_recorded(std::span<const py::Ref> outputs) const {
  const auto is_input = [this](const at::Tensor& leaf) {
    return !tracer::is_trace_tensor(leaf) || recorder_.tensors.real_behind(leaf).defined();
  };
  const auto check = [&](Node& node) {
    if (is_released(node) || backwards_.keeps(node)) return false;
    if (!node.pre_hooks().empty() || !node.post_hooks().empty()) {
      refuse(
          "hooks on nodes of the graph, when backward() comes after the function: call it inside, or register the hook "
          "on a tensor");
    }
    const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(&node);
    if (leaf != nullptr && !node.tensor_pre_hooks().empty() && !is_input(leaf->variable)) {
      refuse("Tensor.register_hook on a leaf made inside of the function: register it on what the function returns");
    }
    return false;
  };
  std::unordered_set<Node*> done;
  for (const py::Ref& output : outputs) {
    if (!is_tensor(output.get())) continue;  // a number
    const at::Tensor& tensor = unpack_tensor(output.get());
    if (!tracer::is_trace_tensor(tensor) || !tensor.requires_grad()) continue;
    const torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(tensor);
    if (!done.insert(edge.function.get()).second) continue;
    static_cast<void>(autograd::any_node_behind(edge, check));
  }
}

void GradientHooks::require_made(const ir::ArgumentList& outputs) const {
  if (hooked_.empty() || backwards_.leaves_hooks()) return;
  const ir::Trace& trace = recorder_.trace();
  std::unordered_set<std::uint32_t> made;
  for (const ir::ValueId input : trace.inputs) made.insert(index_of(input));
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    for (const ir::ValueId id : ir::flat_results(symbol)) made.insert(index_of(id));
  }
  for (const ir::Argument& output : outputs) {
    const auto* id = output.get<ir::ValueId>();
    if (id == nullptr || made.contains(index_of(*id))) continue;
    refuse(
        "Tensor.register_hook: expected a hook that only computes a gradient, got one that keeps it in something that "
        "the function returns or stores; call backward() inside of the function too");
  }
}

}  // namespace thunder::dispatch
