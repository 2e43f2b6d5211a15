#pragma once

#include <string_view>

#include "fusion/target.h"
#include "ir/trace.h"
#include "passes/pass.h"

namespace thunder::fusion {

/// The target that an executor makes kernels for; null: it makes none.
using FindTarget = const Target* (*)(std::string_view executor);

/// Decides where results lie, and how long memory is in use, and says so in the trace:
///
/// - An operation writes its result into the memory of an argument that dies with it (`add_` for `add`,
///   `gelu_backward.grad_input` for `gelu_backward`): one allocation less, and memory that the cache holds already.
///   Only into memory that the trace made itself and that nothing else shares, of the result's dtype and strides. Never
///   into inputs (so never into values saved for a backward), constants or outputs.
/// - What a fusion makes and only `cat`, `stack`, `pad` or the derivative of a slice reads lies in the larger tensor
/// from
///   the start. That becomes an `empty_strided` in front of the fusion and slices of it; the fusion ends with a `copy_`
///   of its result into a slice, and what is left of the operation are copies of its other parts.
/// - What is only copied to memory of the caller ends with that `copy_`, too.
/// - An operation by itself on memory of the caller, whose result is copied there, writes there (`index_copy_` into a
///   cache), where nothing that comes in between reads what was there, or may stop. If it writes rows that a fusion
///   alone makes, perhaps behind views, that fusion ends with it.
/// - Where a slice is all that is read of a result (a `pad` by negative sizes), the fusion ends with the slice.
/// - What an asynchronous operation reads and gives is read again, by `prims.keep`, behind the wait for it: until then
///   it is not written to, and nobody frees it.
///
/// A kernel stores what is copied, or sliced, where it goes to; operations one by one do the same in two steps.
[[nodiscard]] ir::Trace assign_buffers(const ir::Trace& trace, FindTarget find_target,
                                       passes::FindOperator find_operator);

inline constexpr const char* kBufferAssignment = "buffer_assignment";

/// `prims.keep([tensors])`: what was started before uses their memory up to here.
[[nodiscard]] const ir::Operator* keep_operator();

}  // namespace thunder::fusion
