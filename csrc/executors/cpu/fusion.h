#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "executors/cpu/sized_fusion.h"

namespace thunder::executors::cpu {

/// A fused symbol, ready to run. Equal ones of all programs are one object. Thread-safe.
class Fusion {
 public:
  /// The fusion for a symbol of `fused_operator()`.
  [[nodiscard]] static std::shared_ptr<const Fusion> of(const ir::BoundSymbol& fused, const ir::Trace& trace);

  explicit Fusion(ir::Trace region);

  /// Takes its inputs from the end of the stack and puts its results there. Behind the inputs stand the values of its
  /// symbols, if it has some.
  void run(std::vector<c10::IValue>& stack) const;

  /// The symbols that sizes depend on, ascending.
  [[nodiscard]] const std::vector<std::uint32_t>& symbols() const { return symbols_; }
  /// Bytes that a run reads and writes, each tensor once.
  [[nodiscard]] static std::int64_t bytes_of(const ir::BoundSymbol& fused, const ir::Trace& trace);

 private:
  using SymbolValues = std::vector<std::int64_t>;  ///< by symbol

  [[nodiscard]] std::shared_ptr<const SizedFusion> at(SymbolValues values) const;

  ir::Trace region_;  ///< one symbol, the fused one; its inputs and outputs are the trace's
  std::vector<std::uint32_t> symbols_;
  std::optional<fusion::KernelGraph> kernel_;  ///< for all sizes
  std::shared_ptr<const SizedFusion> only_;    ///< without symbols
  mutable std::mutex mutex_;
  mutable std::list<std::pair<SymbolValues, std::shared_ptr<const SizedFusion>>> sized_;  ///< the last used first
};

}  // namespace thunder::executors::cpu
