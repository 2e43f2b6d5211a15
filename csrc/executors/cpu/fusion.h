#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "executors/cpu/destinations.h"
#include "executors/cpu/tile_emission.h"
#include "fusion/lowering.h"
#include "ir/trace.h"
#include "runtime/program.h"

namespace thunder::executors::cpu {

using fusion::Strides;

/// A fused symbol, ready to run. Equal ones of all programs are one object. Thread-safe.
class Fusion {
 public:
  /// The fusion for a symbol of `fused_operator()`.
  [[nodiscard]] static std::shared_ptr<const Fusion> of(const ir::BoundSymbol& fused, const ir::Trace& trace,
                                                        const Destinations& destinations);

  Fusion(ir::Trace region, Destinations destinations);

  /// Takes its inputs from the end of the stack and puts its results there. Inputs of other strides than were traced
  /// have a program of their own; where there is none, PyTorch runs the operations one by one.
  void run(std::vector<c10::IValue>& stack) const;

  [[nodiscard]] std::size_t input_count() const { return inputs_.size(); }
  [[nodiscard]] std::size_t output_count() const { return outputs_.size(); }
  /// Whether tiles run it as it was traced.
  [[nodiscard]] bool has_program() const { return first_ != nullptr && first_->program.has_value(); }
  /// Bytes that a run reads and writes, each tensor once.
  [[nodiscard]] static std::int64_t bytes_of(const ir::BoundSymbol& fused, const ir::Trace& trace);

 private:
  struct Tensor {
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    at::ScalarType dtype;
  };
  struct Plan {
    Strides strides;
    std::optional<TileProgram> program;  ///< none: PyTorch runs it
    bool joins = false;                  ///< parts of wholes are computed where they stand there, and cuts alone
  };

  [[nodiscard]] const Plan& plan_for(const c10::IValue* inputs) const;
  [[nodiscard]] std::optional<TileProgram> make_program(const Strides& strides, const Destinations& destinations) const;
  [[nodiscard]] std::unique_ptr<Plan> make_plan(Strides strides) const;
  [[nodiscard]] static bool has_strides(const Plan& plan, const c10::IValue* inputs, std::size_t count);
  [[nodiscard]] bool is_as_traced(const c10::IValue* inputs) const;
  [[nodiscard]] std::vector<at::Tensor> make_results(const Plan& plan, const c10::IValue* inputs) const;
  void run_operations(std::vector<c10::IValue>& stack) const;

  ir::Trace region_;  ///< one symbol, the fused one; its inputs and outputs are the trace's
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
  Destinations destinations_;
  std::unique_ptr<Plan> first_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Plan>> others_;
  mutable std::once_flag operations_once_;
  mutable runtime::Program operations_;
};

}  // namespace thunder::executors::cpu
