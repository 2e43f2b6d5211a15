#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ir/trace.h"

namespace thunder::ir {

/// In tables of the symbols' places in a trace.
inline constexpr std::uint32_t kNoPlace = std::numeric_limits<std::uint32_t>::max();

/// Who makes each value of a trace, and who reads it. Symbols are named by their places in the trace. Comments and
/// nested operations read nothing.
class Uses {
 public:
  explicit Uses(const Trace& trace);

  /// The symbol that gives the value; kNoPlace: it is an input, or kNoValue.
  [[nodiscard]] std::uint32_t maker(ValueId id) const { return id == kNoValue ? kNoPlace : makers_[index_of(id)]; }
  /// The symbols that read it, ascending, each once.
  [[nodiscard]] std::span<const std::uint32_t> readers(ValueId id) const {
    return std::span(readers_).subspan(begins_[index_of(id)], ends_[index_of(id)] - begins_[index_of(id)]);
  }
  /// How often symbols and outputs name it.
  [[nodiscard]] std::uint32_t count(ValueId id) const { return counts_[index_of(id)]; }
  /// The trace returns it.
  [[nodiscard]] bool is_output(ValueId id) const { return is_output_[index_of(id)]; }
  /// The symbol after which nobody needs it: the last reader, or its maker; kNoPlace: it is an output, or an input
  /// that nobody reads.
  [[nodiscard]] std::uint32_t last_use(ValueId id) const;

 private:
  std::vector<std::uint32_t> makers_;
  std::vector<std::uint32_t> begins_;
  std::vector<std::uint32_t> ends_;
  std::vector<std::uint32_t> readers_;
  std::vector<std::uint32_t> counts_;
  std::vector<bool> is_output_;
};

}  // namespace thunder::ir
