#pragma once

#include <cstddef>

#include "ir/trace.h"

namespace thunder::passes {

/// A forward on a device that saves the result of a log-softmax, `(x - m) - log(sum(exp(x - m)))` with the maximum `m`
/// of each row, saves `(x - m) + n` instead, with the maximum `n` of the result: the same numbers, bit for bit, which
/// follow from `x` and two numbers of each row (the last dimension), so that rematerialization need not save them, nor
/// reduce rows again. `first_saved`: the output from which on they are saved values.
[[nodiscard]] ir::Trace save_log_softmax_statistics(const ir::Trace& trace, ir::DeviceType device,
                                                    std::size_t first_saved, ir::FindOperator find_operator);

inline constexpr const char* kLogSoftmaxStatistics = "log_softmax_statistics";

}  // namespace thunder::passes
