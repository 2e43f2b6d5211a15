#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/trace.h"
#include "tracer/evaluate.h"

namespace thunder::tracer {

/// The sizes of an operation's results, by tensor and dimension: those that follow from data are nullopt, the others
/// follow from the sizes of the arguments.
using DataShapes = std::vector<std::vector<std::optional<std::int64_t>>>;
/// nullopt: nothing is known of this operator.
[[nodiscard]] std::optional<DataShapes> data_shapes(const c10::OperatorHandle& op,
                                                    std::span<const c10::IValue> arguments);

/// An operation of the program whose results' sizes follow from data, as it was observed.
struct DataSized {
  std::string op;
  ir::SourceLocation location;
  ResultTypes types;
  std::vector<std::int64_t> sizes;  ///< those that follow from data, in order; empty also where nothing is known
};
[[nodiscard]] DataSized describe_data_sized(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                            const ResultTypes& types);

}  // namespace thunder::tracer
