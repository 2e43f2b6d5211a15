#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "ir/trace.h"

namespace thunder::dispatch {

/// Runs an operation for which `tracer::stands_alone` holds; gives the outputs of its segment.
[[nodiscard]] std::vector<at::Tensor> run_alone(const ir::Trace& segment, std::span<const at::Tensor> inputs);

}  // namespace thunder::dispatch
