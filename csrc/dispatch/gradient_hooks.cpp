#include "dispatch/gradient_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_set>

#include "base/error.h"
#include "dispatch/errors.h"
#include "dispatch/python_tensor.h"
#include "dispatch/substitutes.h"
#include "interpreter/interpret.h"
#include "ir/symbol_values.h"
#include "tracer/backward_graph.h"
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

int GradientHooks::register_hook(PyObject* function, PyObject* const* arguments, std::size_t count, PyObject* names,
                                 PyObject** result) {
  if (count == 0 || !is_tensor(arguments[0])) return 0;
  const at::Tensor& tensor = unpack_tensor(arguments[0]);
  if (tracer::is_trace_tensor(tensor) && recorder_.real_behind(tensor).defined()) {
    PyErr_SetString(
        PyExc_NotImplementedError,
        "thunder.jit: not supported inside a jitted function: Tensor.register_hook on a tensor from outside "
        "of it: register the hook before the call");
    return -1;
  }
  const interpreter::NativeScope native;  // it counts hooks in a global
  *result = PyObject_Vectorcall(function, arguments, count, names);
  if (*result == nullptr) return -1;
  if (tensor.grad_fn() != nullptr) hooked_.push_back({tensor.grad_fn(), recorder_.locate()});
  return 1;
}

void GradientHooks::add_substitutes(interpreter::TrackerOptions& options) {
  if (const py::Ref function = loaded_function("torch", "Tensor.register_hook")) {
    options.substitute(function.get(), [this, own = function.get()](PyObject* const* arguments, std::size_t count,
                                                                    PyObject* names, PyObject** result) {
      return register_hook(own, arguments, count, names, result);
    });
  }
  for (const char* name : {"BackwardHook.setup_input_hook", "BackwardHook.setup_output_hook"}) {
    const py::Ref function = loaded_function("torch.utils.hooks", name);
    if (!function) continue;
    options.substitute(function.get(), [this](PyObject* const*, std::size_t, PyObject*, PyObject**) {
      of_module_ = recorder_.locate();
      return 0;
    });
  }
}

void GradientHooks::record_all(interpreter::Tracker& tracker) {
  std::unordered_set<Node*> done;
  for (const Hooked& hooked : hooked_) {
    if (!done.insert(hooked.node.get()).second || is_released(*hooked.node)) continue;
    current_ = hooked.location;
    const std::uint64_t writes = tracker.journal().write_count();
    recorder_.record_hooks(*hooked.node);
    if (tracker.journal().write_count() != writes) {
      refuse(
          "Tensor.register_hook: expected a hook that only computes a gradient, got one that writes to something from "
          "outside of the function, which would happen once and not at each backward(); call backward() inside of the "
          "function too, or register the hook on what the function returns");
    }
  }
}

bool GradientHooks::record(interpreter::Tracker& tracker) {
  if (hooked_.empty()) return true;
  if (interpret([&] { record_all(tracker); }, tracker)) return true;
  add_location(current_);
  return false;
}

void GradientHooks::require_recorded(std::span<const py::Ref> outputs) const {
  const auto check = [](Node& node) {
    if (is_released(node)) return false;
    if (!node.pre_hooks().empty() || !node.post_hooks().empty()) {
      refuse(
          "full backward hooks of modules, and hooks on nodes of the graph, when backward() comes after the function: "
          "call it inside, remove the hook, or leave the module that has it out of the jitted one");
    }
    const bool is_leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(&node) != nullptr;
    if (is_leaf && !node.tensor_pre_hooks().empty()) {
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
    try {
      static_cast<void>(tracer::any_node_behind(edge, check));
    } catch (const UserError&) {
      set_python_error();
      add_location(of_module_);
      throw PendingError();
    }
  }
}

void GradientHooks::require_made(const ir::ArgumentList& outputs) const {
  if (hooked_.empty()) return;
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
