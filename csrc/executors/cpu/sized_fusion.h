#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "executors/cpu/tile_emission.h"
#include "fusion/block_results.h"
#include "fusion/lowering.h"
#include "ir/trace.h"
#include "runtime/program.h"

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
  struct Tensor {
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    at::ScalarType dtype;
  };
  struct Plan {
    Strides strides;
    std::optional<TileProgram> program;  ///< none: PyTorch runs it
  };

  [[nodiscard]] const Plan& plan_for(const c10::IValue* inputs) const;
  [[nodiscard]] std::optional<TileProgram> make_program(const Strides& strides) const;
  [[nodiscard]] std::unique_ptr<Plan> make_plan(Strides strides) const;
  /// Whether the plan is for inputs of these strides.
  [[nodiscard]] static bool fits(const Plan& plan, const c10::IValue* inputs);
  [[nodiscard]] bool is_as_traced(const c10::IValue* inputs) const;
  [[nodiscard]] static at::Tensor make(const Tensor& like);
  void run_operations(std::vector<c10::IValue>& stack) const;

  ir::Trace region_;  ///< one symbol, the fused one; its inputs and outputs are the trace's
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
  std::vector<fusion::CopyTarget> copies_;
  std::unique_ptr<Plan> first_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Plan>> others_;
  mutable std::once_flag operations_once_;
  mutable runtime::Program operations_;
};

}  // namespace thunder::executors::cpu
