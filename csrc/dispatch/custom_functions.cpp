#include "dispatch/custom_functions.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "dispatch/substitutes.h"

namespace thunder::dispatch {
namespace {

thread_local bool live = false;
thread_local std::vector<std::string> replayed_parts;

py::Ref attribute(PyObject* object, const char* name) {
  py::Ref value = py::Ref::steal(PyObject_GetAttrString(object, name));
  if (!value) PyErr_Clear();
  return value;
}

/// Whether a Function has a method of its own in the place of the base class's.
bool overrides(PyObject* type, const char* method) {
  const py::Ref base = loaded_function("torch.autograd", std::string("Function.") + method);
  return attribute(type, method).get() != base.get();
}

bool has_batching_rule(PyObject* type) {
  const py::Ref generates = attribute(type, "generate_vmap_rule");
  return overrides(type, "vmap") || (generates && PyObject_IsTrue(generates.get()) == 1);
}

bool below_torch_func() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

bool is_batching(const std::string& transform) { return transform == "vmap"; }
bool is_casting(const std::string& transform) { return transform == "autocast"; }

std::string class_name_of(PyObject* type) { return reinterpret_cast<PyTypeObject*>(type)->tp_name; }

}  // namespace

bool transforms_are_live() { return live; }

ReplayedPart::ReplayedPart(std::string transform) { replayed_parts.push_back(std::move(transform)); }
ReplayedPart::~ReplayedPart() { replayed_parts.pop_back(); }

CustomFunctions::CustomFunctions(bool live_now, SourceLocator& locator, ir::SourceLocation& failed)
    : was_live_(std::exchange(live, live_now)), locator_(locator), failed_(failed) {}
CustomFunctions::~CustomFunctions() { live = was_live_; }

void CustomFunctions::refuse(PyObject* type, const std::string& message) {
  failed_ = locator_.here();
  PyErr_SetString(type, message.c_str());
}

int CustomFunctions::apply(PyObject* const* arguments, std::size_t count) {
  if (count == 0 || !PyType_Check(arguments[0])) return 0;
  PyObject* type = arguments[0];
  const bool in_forward_mode = std::ranges::any_of(
      replayed_parts, [](const std::string& transform) { return !is_batching(transform) && !is_casting(transform); });
  const bool has_context = overrides(type, "setup_context");
  if (!has_context && (below_torch_func() || in_forward_mode)) {
    refuse(PyExc_RuntimeError, class_name_of(type) +
                                   ": expected a torch.autograd.Function with a setup_context staticmethod below "
                                   "torch.func's transforms and thunder.jvp, got one whose forward takes ctx; split it "
                                   "into forward(*inputs) and setup_context(ctx, inputs, output)");
    return -1;
  }
  if (below_torch_func() || replayed_parts.empty()) return 0;
  const bool in_autocast = std::ranges::any_of(replayed_parts, is_casting);
  if (!in_forward_mode && !in_autocast && !(has_context && has_batching_rule(type))) return 0;
  wants_live_ = true;
  PyErr_SetString(PyExc_RuntimeError, "thunder: the program is traced again");
  return -1;
}

void CustomFunctions::add_substitutes(interpreter::TrackerOptions& options) {
  const py::Ref function = loaded_function("torch.autograd", "Function.apply.__func__");
  const py::Ref no_jvp = loaded_function("torch.autograd", "Function.jvp");
  if (!function || !no_jvp) return;
  options.substitute(function.get(), [this](PyObject* const* arguments, std::size_t count, PyObject*, PyObject**) {
    return apply(arguments, count);
  });
  options.substitute(no_jvp.get(), [this](PyObject* const* arguments, std::size_t count, PyObject*, PyObject**) {
    // Its context is of a class made for this level: `MyFunctionGeneratedBackward`.
    std::string name = count == 0 ? "" : Py_TYPE(arguments[0])->tp_name;
    name = name.substr(0, name.find("GeneratedBackward"));
    refuse(PyExc_NotImplementedError, name +
                                          ": expected a torch.autograd.Function with a jvp staticmethod in forward "
                                          "mode (jvp, jacfwd, hessian), got one without; write jvp(ctx, *tangents)");
    return -1;
  });
}

}  // namespace thunder::dispatch
