#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ir/condition.h"
#include "ir/size.h"

namespace thunder::tracer {

/// The size of a tensor among the arguments in a dimension, which may count from the end; nullopt: it is not known.
using FindSize = std::function<std::optional<ir::Dim>(const c10::IValue& tensor, std::int64_t dim)>;

/// Whether an operation slides windows over its first argument: a convolution or a pool, by the names of its
/// parameters.
[[nodiscard]] bool slides_windows(const c10::OperatorHandle& op);
/// How many windows such an operation has along each of the last dimensions of its input, whose sizes are `sizes`.
/// Empty: that is not known. Adds the conditions under which there are so many.
[[nodiscard]] std::vector<ir::Dim> window_counts(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                                 const ir::Dims& sizes, const FindSize& find_size,
                                                 std::vector<ir::Condition>& conditions);

}  // namespace thunder::tracer
