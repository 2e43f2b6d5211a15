#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "ir/trace.h"

namespace thunder::tracer {

/// Runs one symbol on real tensors, which `value` gives; one result for each of its results, lists flattened. nullopt:
/// the symbol runs as PyTorch does.
using RunSymbol = std::function<std::optional<std::vector<at::Tensor>>(
    const ir::BoundSymbol& symbol, const ir::Trace& trace, const std::function<at::Tensor(ir::ValueId)>& value)>;

/// While alive, data that programs of this thread read while they are traced is computed by `run`: what executors
/// compute in their own way must be the same at later calls, down to the bits.
class RealizeScope {
 public:
  explicit RealizeScope(RunSymbol run);
  ~RealizeScope();
  RealizeScope(const RealizeScope&) = delete;
  RealizeScope& operator=(const RealizeScope&) = delete;

  [[nodiscard]] const RunSymbol& run() const { return run_; }

 private:
  RunSymbol run_;
  const RealizeScope* previous_;
};

}  // namespace thunder::tracer
