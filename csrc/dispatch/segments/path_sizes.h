#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dispatch/segments/observed_values.h"
#include "ir/condition.h"
#include "ir/trace.h"
#include "ir/trace_sizes.h"

namespace thunder::dispatch {

/// The sizes of a recorded trace with checks: which of its inputs give symbols, and what must hold.
struct PathSizes {
  struct InputSize {
    std::size_t input = 0;
    std::size_t dim = 0;
    ir::Dim size;
  };
  struct SizeCondition {
    ir::Condition condition;
    std::vector<std::uint32_t> symbols;
    std::string text;  ///< for messages
  };
  std::vector<ir::SymbolSource> sources;
  std::vector<InputSize> input_sizes;  ///< that depend on symbols
  std::vector<SizeCondition> conditions;
  std::size_t symbol_count = 0;  ///< zero: all sizes are numbers

  PathSizes() = default;
  explicit PathSizes(const ir::Trace& recorded);
};

/// The values that a path's symbols have in a run: of the sizes of inputs, and of those that its checks find.
class SymbolBinding {
 public:
  explicit SymbolBinding(const PathSizes& sizes);

  /// False: the path is not for these inputs.
  [[nodiscard]] bool bind_inputs(std::span<const at::Tensor> inputs);
  /// Compares what a run observed; symbols that have no value get theirs. False: the path goes on otherwise.
  [[nodiscard]] bool bind(const Expected& expected, const Observed& observed);
  /// By symbol; zero: not known.
  [[nodiscard]] const std::vector<std::int64_t>& values() const { return values_; }
  /// After false, the condition that did not hold; empty: there is none.
  [[nodiscard]] const std::string& unmet() const { return unmet_; }

 private:
  [[nodiscard]] bool set(std::uint32_t symbol, std::int64_t value);
  [[nodiscard]] bool is_known(std::span<const std::uint32_t> symbols) const;
  [[nodiscard]] bool check_conditions();

  const PathSizes& sizes_;
  std::vector<std::int64_t> values_;
  std::vector<bool> is_checked_;  ///< by condition
  std::string unmet_;
};

}  // namespace thunder::dispatch
