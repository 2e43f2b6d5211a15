#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <span>

#include "tracer/evaluate.h"

namespace thunder::tracer {

/// Metadata of the results of one of PyTorch's operators without a meta kernel, by running its backend kernel on zeros.
/// For operators whose shapes do not follow from data, where no data is at hand: in derivatives.
[[nodiscard]] ResultTypes infer_by_probe(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

}  // namespace thunder::tracer
