#pragma once

#include <optional>
#include <string_view>

#include "fusion/target.h"
#include "ir/trace.h"
#include "passes/pass.h"

namespace thunder::fusion {

/// Decides where results of an executor's fusions lie, and says so in the trace:
///
/// - What only `cat`, `stack`, `pad` or the derivative of a slice reads lies in the larger tensor from the start. That
///   becomes an `empty_strided` in front of the fusion and slices of it; the fusion ends with a `copy_` of its result
///   into a slice, and what is left of the operation are copies of its other parts.
/// - What is only copied to memory of the caller ends with that `copy_`, too.
/// - Where a slice is all that is read of a result (a `pad` by negative sizes), the fusion ends with the slice.
///
/// A kernel stores what is copied, or sliced, where it goes to; operations one by one do the same in two steps.
/// nullopt: there is nothing to decide.
[[nodiscard]] std::optional<ir::Trace> assign_buffers(const ir::Trace& trace, std::string_view executor,
                                                      const Target& target, passes::FindOperator find_operator);

inline constexpr const char* kBufferAssignment = "buffer_assignment";

}  // namespace thunder::fusion
