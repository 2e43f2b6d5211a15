#pragma once

#include <cstddef>

#include "ir/trace.h"

namespace thunder::passes {

/// Copies into contiguous memory (`clone`, `contiguous`) on a device that need not be made, or not from a copy:
/// - of a permuted value that was brought to other strides, where it would be contiguous with its own: becomes a view.
///   Attention whose mask was left out lays its result out as its query;
/// - of permuted parts that `stack` or `cat` has put together: the parts are put together in that order at once. The
///   gradients of queries, keys and values come so to the matmul that they were made by.
/// Copies that the caller gets, in the first `caller_outputs` outputs, stay.
[[nodiscard]] ir::Trace avoid_contiguous_copies(const ir::Trace& trace, ir::DeviceType device,
                                                std::size_t caller_outputs, ir::FindOperator find_operator);

inline constexpr const char* kContiguousCopies = "contiguous_copies";

}  // namespace thunder::passes
