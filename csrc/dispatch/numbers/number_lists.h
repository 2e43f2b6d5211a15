#pragma once

#include "interpreter/provenance/tracker_native.h"

namespace thunder::dispatch {

// Operations on lists of tensors, with numbers of the trace among their arguments. A status is by the convention of
// `TrackerOptions::intercept`.

/// `torch._foreach_…` with such a number, or a list of them, as a call for each tensor.
[[nodiscard]] int call_for_each(PyObject* callable, const interpreter::NativeCall& call, PyObject** result);
/// `torch._fused_adamw_` and its like with such numbers.
[[nodiscard]] int call_fused(PyObject* callable, const interpreter::NativeCall& call, PyObject** result);

}  // namespace thunder::dispatch
