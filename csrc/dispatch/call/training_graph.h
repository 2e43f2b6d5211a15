#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "compile/compiler.h"
#include "dispatch/call/recorded_graph.h"
#include "runtime/differentiable_program.h"

namespace thunder::dispatch {

/// Runs the forward and the backward of a computation with gradients as a CUDA graph each.
///
/// Outputs and gradients are copied from the graphs' memory, so that nothing that a later step does changes them.
/// Values saved for the backward stay there, in a pool of their own, which no other program's graph writes to: so a
/// forward that comes while those of the one before it are still needed (two forwards before a backward,
/// `retain_graph`) runs kernel by kernel, as does its backward.
class TrainingGraph final : public runtime::GraphRunner {
 public:
  /// Null: the options want none, or the facts name an obstacle.
  [[nodiscard]] static std::shared_ptr<TrainingGraph> make(const compile::Compiled& computation,
                                                           compile::CudaGraphs wanted);
  ~TrainingGraph() override;

  bool run_forward(const runtime::DifferentiableProgram& program, std::span<const c10::IValue> inputs,
                   std::span<c10::IValue> results, Hold& hold) override;
  bool run_backward(const runtime::BackwardProgram& program, std::span<const c10::IValue> inputs,
                    std::span<c10::IValue> results, const Hold& hold) override;
  void retire(const std::string& reason) override;
  /// "recorded", or why the forward or the backward is not. Needs the GIL.
  [[nodiscard]] std::string state() const;

 private:
  using Tensors = std::vector<at::Tensor>;
  TrainingGraph(compile::CudaGraphs wanted, std::int64_t bytes) : wanted_(wanted), bytes_(bytes) {}

  [[nodiscard]] bool is_in_use() const { return !in_use_.expired(); }
  /// Forgets both graphs.
  void reset();
  void drop();
  void record_forward(const runtime::DifferentiableProgram& program, const Tensors& inputs);
  void record_backward(const runtime::BackwardProgram& program, const Tensors& inputs);
  [[nodiscard]] std::vector<bool> moves_of_backward(const Tensors& inputs) const;

  const compile::CudaGraphs wanted_;
  const std::int64_t bytes_;      ///< size of all results of the forward
  std::int64_t small_bytes_ = 0;  ///< taken of what programs have in all that nobody asked to record
  mutable std::mutex mutex_;
  std::string forward_obstacle_;
  std::string backward_obstacle_;
  InputAddresses addresses_;
  int in_vain_ = 0;
  py::Ref pool_;
  std::optional<RecordedGraph> forward_;
  std::optional<RecordedGraph> backward_;
  const runtime::BackwardProgram* backward_program_ = nullptr;  ///< which was recorded
  std::weak_ptr<const void> in_use_;  ///< the last forward that was replayed, while its saved values are needed
};

}  // namespace thunder::dispatch
