#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "executors/cuda/fusion.h"
#include "ir/trace.h"

namespace thunder::executors::cuda {

/// A block of kernels that need nothing of one another, ready to run: those of one text are launched together.
/// Thread-safe.
class Batch {
 public:
  Batch(const ir::BoundSymbol& batch, const ir::Trace& trace, const fusion::Target& target, Engine& engine, bool waits);

  /// As `Fusion::run`. A member without a kernel runs operation by operation.
  void run(std::vector<c10::IValue>& stack) const;

  [[nodiscard]] std::vector<std::shared_ptr<const Fusion>> fusions() const;
  /// The symbols that sizes depend on, ascending.
  [[nodiscard]] const std::vector<std::uint32_t>& symbols() const { return symbols_; }

 private:
  struct Member {
    std::shared_ptr<const Fusion> fusion;
    std::vector<std::size_t> inputs;  ///< places among the batch's
    std::size_t result_count = 0;
  };
  /// A member while it runs.
  struct Running {
    std::vector<c10::IValue> inputs;
    std::vector<std::int64_t> symbols;
    std::unique_ptr<Fusion::Run> run;  ///< null: it runs operation by operation
    bool is_launched = false;
  };

  [[nodiscard]] std::vector<Running> prepare(const std::vector<std::int64_t>& symbols, const c10::IValue* inputs) const;
  void launch(std::vector<Running>& running) const;

  Engine& engine_;
  std::vector<Member> members_;
  std::vector<std::uint32_t> symbols_;
  std::size_t input_count_ = 0;
};

}  // namespace thunder::executors::cuda
