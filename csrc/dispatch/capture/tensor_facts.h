#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "interpreter/provenance/tracker.h"

namespace thunder::dispatch {

/// Facts about inputs that are guarded only if the program asks for them: where in its memory an input begins.
void add_tensor_facts(interpreter::TrackerOptions& options);

/// Whether an input says that it requires grad for its base's sake: it is a view made before that did. It has no
/// gradient of its own until `requires_grad_()` is called on it, of which what it says tells nothing.
[[nodiscard]] bool requires_grad_for_base(const at::Tensor& tensor);
inline constexpr const char* kRequiresGradForBase =
    "thunder.jit: not supported inside a jitted function: requires_grad_() on a view that was made before its base "
    "required grad; call it outside";

/// Whether a tensor of the trace is an input or a view of one.
[[nodiscard]] bool shows_input(const at::Tensor& tensor);
/// Whether a tensor of the trace shows the conjugate or the negative of memory that eager would not have computed.
[[nodiscard]] bool is_conjugate_or_negative(const at::Tensor& tensor);
/// Leaves what a trace cannot tell to eager. Returns false, with an exception set that the program cannot swallow.
bool refuse_fact(const std::string& what);

}  // namespace thunder::dispatch
