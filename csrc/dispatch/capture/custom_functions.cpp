#include "dispatch/capture/custom_functions.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <string>
#include <utility>

#include "dispatch/capture/substitutes.h"
#include "dispatch/capture/tensor_facts.h"
#include "dispatch/python/python_tensor.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"

namespace thunder::dispatch {
namespace {

/// The custom functions of the capture on this thread.
CustomFunctions*& current() { return tracer::TraceSession::current().custom_functions; }

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

bool below_torch_func() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

std::string class_name_of(PyObject* type) { return reinterpret_cast<PyTypeObject*>(type)->tp_name; }

}  // namespace

bool transforms_are_live() { return current() != nullptr && current()->is_live(); }

RecordedPart::RecordedPart(bool for_autocast) : program_(current()), for_autocast_(for_autocast) {
  if (program_ == nullptr) return;
  program_->has_parts_ = true;
  ++program_->parts_;
  program_->autocast_parts_ += static_cast<int>(for_autocast_);
}

RecordedPart::~RecordedPart() {
  if (program_ == nullptr) return;
  --program_->parts_;
  program_->autocast_parts_ -= static_cast<int>(for_autocast_);
}

void RecordedPart::ask_for_live_transforms() {
  if (program_ != nullptr) program_->wants_live_ = true;
}

CustomFunctions::CustomFunctions(bool live, SourceLocator& locator, ir::SourceLocation& failed)
    : previous_(std::exchange(current(), this)), live_(live), locator_(locator), failed_(failed) {}
CustomFunctions::~CustomFunctions() { current() = previous_; }

void CustomFunctions::refuse(PyObject* type, const std::string& message) {
  failed_ = locator_.here();
  PyErr_SetString(type, message.c_str());
}

int CustomFunctions::trace_again() {
  wants_live_ = true;
  PyErr_SetString(PyExc_RuntimeError, "thunder: the program is traced again");
  return -1;
}

int CustomFunctions::apply(PyObject* const* arguments) {
  PyObject* type = arguments[0];
  if (below_torch_func() && !overrides(type, "setup_context")) {
    refuse(PyExc_RuntimeError, class_name_of(type) +
                                   ": in order to be transformed (vmap, jvp, jacrev, ...), a torch.autograd.Function "
                                   "must override the setup_context staticmethod; split its forward into "
                                   "forward(*inputs) and setup_context(ctx, inputs, output)");
    return -1;
  }
  return !below_torch_func() && autocast_parts_ != 0 ? trace_again() : 0;
}

/// PyTorch gives the tensor that a view shows the Function's history, too.
int CustomFunctions::mark_dirty(PyObject* const* arguments, std::size_t count) {
  for (std::size_t i = 1; i < count; ++i) {
    if (!is_tensor(arguments[i]) || !unpack_tensor(arguments[i]).requires_grad()) continue;
    const tracer::TraceTensorImpl* impl = tracer::trace_impl(unpack_tensor(arguments[i]));
    if (impl == nullptr || !impl->state()->view) continue;
    refuse(PyExc_NotImplementedError,
           "ctx.mark_dirty: expected tensors that are no views, got a view of a tensor that requires grad; write to it "
           "outside of the torch.autograd.Function");
    return -1;
  }
  return 0;
}

void CustomFunctions::add_substitutes(interpreter::TrackerOptions& options, PythonBackwards& backwards) {
  const py::Ref function = loaded_function("torch.autograd", "Function.apply.__func__");
  const py::Ref no_jvp = loaded_function("torch.autograd", "Function.jvp");
  if (!function || !no_jvp) return;
  if (const py::Ref method = loaded_function("torch.autograd.function", "FunctionCtx.mark_dirty")) {
    options.substitute(method.get(), [this](PyObject* const* arguments, std::size_t count, PyObject*, PyObject**) {
      return mark_dirty(arguments, count);
    });
  }
  // PyTorch's transforms raise here.
  for (const char* name : {"Tensor.requires_grad_", "Tensor.retain_grad"}) {
    if (const py::Ref method = loaded_function("torch", name)) {
      options.substitute(method.get(), [this](PyObject* const* arguments, std::size_t count, PyObject*, PyObject**) {
        if (count != 0 && is_tensor(arguments[0]) && requires_grad_for_base(unpack_tensor(arguments[0]))) {
          refuse(PyExc_NotImplementedError, kRequiresGradForBase);
          return -1;
        }
        return parts_ != 0 && autocast_parts_ == 0 ? trace_again() : 0;
      });
    }
  }
  options.substitute(function.get(),
                     [this, &backwards, own = function.get()](PyObject* const* arguments, std::size_t count,
                                                              PyObject* names, PyObject** result) {
                       if (count == 0) return backwards.enter();
                       if (!PyType_Check(arguments[0])) return 0;
                       const int status = apply(arguments);
                       return status != 0 ? status : backwards.apply(own, arguments, count, names, result);
                     });
  // Whether a backward asks shows in the trial of it; `Function.apply` in C calls `forward` with what it was given.
  if (const py::Ref query = loaded_function("torch._C", "is_grad_enabled")) {
    options.substitute(query.get(), [&backwards](PyObject* const*, std::size_t, PyObject*, PyObject**) {
      backwards.tracker->parts().note_grad_mode();
      return 0;
    });
  }
  if (const py::Ref inner = loaded_function("torch._C", "_FunctionBase.apply")) {
    options.hand_on.insert(interpreter::native_identity(inner.get()));
  }
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
