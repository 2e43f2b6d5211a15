#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ir/trace.h"

namespace thunder::transforms {

/// How the operations of a replay see gradients.
enum class GradMode : std::uint8_t {
  kAsNow,       ///< as the thread's mode says
  kAsRecorded,  ///< also off where the trace was recorded with gradients off
};

/// Changes what an operation of a replay is called with; or makes the call itself, puts the results in the place of the
/// arguments, and returns true.
using AdaptCall = std::function<bool(const ir::BoundSymbol& symbol, torch::jit::Stack& stack)>;

/// Calls the operations of `trace` through the dispatcher, on tensors of any kind: real ones, trace tensors of a
/// recorder that is active (which then records them, with the locations of `trace`), tensors of a functorch layer.
/// One tensor for each output; undefined for None.
[[nodiscard]] std::vector<at::Tensor> replay(const ir::Trace& trace, std::span<const at::Tensor> inputs,
                                             GradMode grad_mode = GradMode::kAsNow, const AdaptCall& adapt = {});

/// The inputs of a trace to be recorded.
struct RecordedInputs {
  std::vector<ir::TypePtr> types;
  std::function<at::Tensor(std::size_t)> data;  ///< for programs that look at it; may be empty
  bool is_same_kind = false;                    ///< as `origin`; otherwise a part named by the step
};

/// The trace that `program` records when it is called with such inputs. It belongs to the family of `origin`, and
/// continues its history with `step`.
[[nodiscard]] ir::Trace record(const ir::Trace& origin, const std::string& step, const RecordedInputs& inputs,
                               const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& program);

}  // namespace thunder::transforms
