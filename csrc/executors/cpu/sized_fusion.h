#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "executors/cpu/tile_emission.h"
#include "executors/fused/fused_region.h"
#include "fusion/lowering.h"
#include "ir/trace.h"

namespace thunder::executors::cpu {

/// A fused symbol for certain sizes, ready to run. Thread-safe.
class SizedFusion {
 public:
  /// `region` has no symbols. The kernel for the strides that it has, if that is known; null: it is made.
  SizedFusion(ir::Trace region, const fusion::SizedKernel* kernel);

  /// Takes its inputs from the end of the stack and puts its results there. Inputs of other strides than were traced
  /// have a program of their own; where there is none, PyTorch runs the operations one by one.
  void run(std::vector<c10::IValue>& stack) const;

 private:
  using Strides = std::vector<std::vector<std::int64_t>>;  ///< for each input
  struct Plan {
    Strides strides;
    std::optional<TileProgram> program;  ///< none: PyTorch runs it
  };

  [[nodiscard]] const Plan& plan_for(const c10::IValue* inputs) const;
  [[nodiscard]] std::optional<TileProgram> make_program(const Strides& strides) const;
  [[nodiscard]] std::unique_ptr<Plan> make_plan(Strides strides) const;
  /// Whether the plan is for inputs of these strides.
  [[nodiscard]] static bool fits(const Plan& plan, const c10::IValue* inputs);

  FusedRegion region_;
  std::unique_ptr<Plan> first_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Plan>> others_;
};

}  // namespace thunder::executors::cpu
