#pragma once

#include "ir/trace.h"
#include "passes/pass.h"

namespace thunder::passes {

/// Dropouts of tensors on a device of that type become a state of the generator, a mask that follows from it element by
/// element, and arithmetic: so the mask is computed inside of fusions, and again in the backward, which keeps 32 bytes
/// of it. Masks are PyTorch's (`bridge/counted_dropout.h`).
[[nodiscard]] ir::Trace count_dropouts(const ir::Trace& trace, ir::DeviceType device, FindOperator find_operator);

inline constexpr const char* kCountedDropouts = "counted_dropouts";

}  // namespace thunder::passes
