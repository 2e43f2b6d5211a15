#pragma once

namespace thunder::tracer {

/// Registers the dispatcher operators that traces need beside PyTorch's, `torch.ops.thunder.*`, once per process:
/// `restride` (a tensor with the strides that were recorded), and what programs do to random generators, and
/// random masks that are drawn again (`bridge/bernoulli.h`, `bridge/dropout.h`).
void register_library();

}  // namespace thunder::tracer
