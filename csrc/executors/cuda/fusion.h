#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "executors/cuda/engine.h"
#include "executors/fused/fused_region.h"
#include "fusion/lowering.h"

namespace thunder::executors::cuda {

/// A fused symbol, ready to run. Thread-safe.
class Fusion {
 public:
  Fusion(ir::Trace region, const fusion::Target& target, Engine& engine);

  /// Takes its inputs from the end of the stack and puts its results there. Behind the inputs stand the values of its
  /// symbols, if it has some. Inputs that were laid out otherwise when it was traced have a kernel of their own; where
  /// there is none, PyTorch runs the operations one by one.
  void run(std::vector<c10::IValue>& stack) const;

  /// The symbols that sizes depend on, ascending.
  [[nodiscard]] const std::vector<std::uint32_t>& symbols() const { return symbols_; }

 private:
  /// A kernel for certain sizes, strides and addresses.
  struct Plan {
    std::vector<std::int64_t> key;
    std::shared_ptr<const FusedRegion> region;
    std::optional<KernelSource> source;  ///< none: PyTorch runs it
    std::shared_ptr<const Module> module;
  };

  [[nodiscard]] std::shared_ptr<const FusedRegion> region_at(const std::vector<std::int64_t>& values) const;
  [[nodiscard]] std::shared_ptr<const Plan> plan_for(const std::vector<std::int64_t>& values,
                                                     const c10::IValue* inputs) const;
  [[nodiscard]] std::shared_ptr<const Plan> make_plan(std::vector<std::int64_t> key,
                                                      const std::vector<std::int64_t>& values,
                                                      std::shared_ptr<const FusedRegion> region,
                                                      const c10::IValue* inputs, std::int64_t alignment) const;
  bool launch(const Plan& plan, const c10::IValue* inputs, std::vector<at::Tensor>& results) const;

  ir::Trace region_;
  const fusion::Target& target_;
  Engine& engine_;
  std::vector<std::uint32_t> symbols_;
  std::optional<fusion::KernelGraph> kernel_;  ///< for inputs of the strides that were traced, and all sizes
  mutable std::mutex mutex_;
  mutable std::list<std::shared_ptr<const Plan>> plans_;  ///< the last used first
};

}  // namespace thunder::executors::cuda
