#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bridge/random.h"
#include "compile/compiler.h"
#include "dispatch/segments/observed_values.h"
#include "dispatch/segments/path_sizes.h"
#include "dispatch/segments/segments.h"

namespace thunder::dispatch {

/// A segment, compiled.
struct CompiledSegment {
  Segment segment;
  std::shared_ptr<compile::Compiled> program;  ///< null: runs nothing, or is bare
  bool has_symbols = false;                    ///< the program says itself which sizes it is for
  bool is_exact = false;                       ///< it gives the same bits as its operations, one by one
};
/// A segment that all paths with the same beginning share. A path that needs more of its values puts in its place the
/// segment with more outputs.
class SharedSegment {
 public:
  [[nodiscard]] std::shared_ptr<const CompiledSegment> get() const { return current_.load(std::memory_order_acquire); }
  void set(std::shared_ptr<const CompiledSegment> segment) {
    current_.store(std::move(segment), std::memory_order_release);
  }

 private:
  std::atomic<std::shared_ptr<const CompiledSegment>> current_;
};

/// How a program that looks at data goes: segments, and what it observed after each. The paths of a callable form a
/// tree: those that begin alike share segments, and part where they observed different values.
struct SegmentPath {
  struct Step {
    std::shared_ptr<SharedSegment> shared;
    Expected expected;               ///< empty: nothing is looked at
    std::vector<ir::ValueId> dying;  ///< values that nothing after it needs
  };

  std::vector<Step> steps;
  std::vector<ir::ValueId> inputs;  ///< ids in the recorded trace, as all values here
  ir::ArgumentList outputs;
  std::size_t value_count = 0;
  PathSizes sizes;
  bridge::RandomSources random;                             ///< a run that stops or fails draws its numbers again
  std::unordered_map<ir::ValueId, std::uint32_t> versions;  ///< counts of the program's writes to outputs
  std::unordered_map<ir::ValueId, std::uint32_t> writes;    ///< to inputs, by the count of eager code

  [[nodiscard]] bool empty() const { return steps.empty(); }
  [[nodiscard]] bool begins_like(const SegmentPath& other) const {
    return !empty() && !other.empty() && steps[0].shared == other.steps[0].shared;
  }
};

/// Compiles the path of a recorded trace with checks; what it has in common with `others` is theirs. Empty when the
/// trace cannot be cut. Throws UserError where a size that follows from data is needed in a way that is not known.
[[nodiscard]] SegmentPath make_path(const ir::Trace& recorded, std::span<const SegmentPath* const> others,
                                    const compile::Options& options);

}  // namespace thunder::dispatch
