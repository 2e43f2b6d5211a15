#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "ir/trace.h"
#include "ir/trace_archive.h"
#include "passes/pass.h"

namespace thunder::compile {

/// The history of one line of traces: every trace from first to last, and the seconds of each step. Traces are
/// archived; the last one is at hand until `put_away`.
class TraceHistory {
 public:
  void add(ir::Trace trace) {
    archive_.add(trace);
    output_count_ = trace.outputs.size();
    last_ = std::move(trace);
  }

  [[nodiscard]] bool empty() const { return archive_.empty(); }
  [[nodiscard]] std::size_t size() const { return archive_.size(); }
  [[nodiscard]] const ir::Trace& last() const { return last_.value(); }
  /// Outputs of the last trace.
  [[nodiscard]] std::size_t output_count() const { return output_count_; }
  [[nodiscard]] ir::Trace at(std::size_t index) const { return archive_.restore(index); }
  [[nodiscard]] std::vector<ir::Trace> all() const { return archive_.restore_all(); }

  /// For a long time, or for ever.
  void put_away() {
    last_.reset();
    archive_.shrink();
  }
  void take_out() {
    if (!empty()) last_ = at(size() - 1);
  }

  std::vector<passes::PassStatistics> statistics;

 private:
  ir::TraceArchive archive_;
  std::optional<ir::Trace> last_;
  std::size_t output_count_ = 0;
};

}  // namespace thunder::compile
