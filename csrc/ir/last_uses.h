#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/trace.h"

namespace thunder::ir {

/// Which values die after which symbol. Outputs never die; a result that nothing uses dies where it was made.
/// Comments and nested operations use nothing.
class LastUses {
 public:
  explicit LastUses(const Trace& trace);

  /// Values whose last use is `trace.symbols[symbol]`, in order of appearance.
  [[nodiscard]] std::span<const ValueId> after(std::size_t symbol) const {
    return std::span(values_).subspan(begins_[symbol], begins_[symbol + 1] - begins_[symbol]);
  }
  /// Inputs that no symbol uses and that are no outputs.
  [[nodiscard]] std::span<const ValueId> unused_inputs() const { return unused_inputs_; }

 private:
  std::vector<std::uint32_t> begins_;
  std::vector<ValueId> values_;
  std::vector<ValueId> unused_inputs_;
};

}  // namespace thunder::ir
