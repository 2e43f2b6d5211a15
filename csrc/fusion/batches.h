#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fusion/partition.h"
#include "fusion/target.h"
#include "ir/trace.h"

namespace thunder::fusion {

/// An executor whose kernels are put together.
struct BatchModel {
  std::string executor;
  const Target* target = nullptr;
  /// How a symbol that no fusion has taken can be one.
  std::function<FusionRole(const ir::BoundSymbol& symbol, const ir::Trace& trace)> role;
  /// Whether another executor runs a symbol that no fusion has taken.
  std::function<bool(const ir::BoundSymbol& symbol, const ir::Trace& trace)> is_claimed;
  /// See `passes::estimate_peak_memory`.
  bool inputs_die = false;
};

/// Puts small kernels that compute alike and need nothing of one another into blocks of kind `kBatch`, which the
/// executor runs as few launches: casts of many weights, sums of many bias gradients, updates of running statistics.
/// Operations that are too small for a fusion of their own take part. A batch stands as late as its first reader
/// allows, no later than its last member stood; what that keeps alive longer is bounded by `Target::most_held`. Nothing
/// moves across communication or effects, nor across writes to what it reads; no write moves up. nullopt: there is no
/// batch.
[[nodiscard]] std::optional<ir::Trace> batch_kernels(const ir::Trace& trace, const BatchModel& model);

inline constexpr const char* kKernelBatches = "kernel_batches";

}  // namespace thunder::fusion
