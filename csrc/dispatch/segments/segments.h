#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/trace.h"

namespace thunder::dispatch {

/// Where the program looked at data: `prims.check_…` of the recorded trace.
struct Observation {
  std::vector<ir::ValueId> values;      ///< ids in the recorded trace; several for the results of one operation
  const ir::Operator* check = nullptr;  ///< null: nothing is looked at here
  ir::SourceLocation location;
};

/// The part of a recorded trace between two such places, as a trace of its own.
struct Segment {
  ir::Trace trace;                    ///< its outputs are values
  std::vector<ir::ValueId> recorded;  ///< for each of its values the one of the recorded trace
  std::vector<ir::ValueId> inputs;    ///< ids in the recorded trace
  std::vector<ir::ValueId> outputs;   ///< ids in the recorded trace
  /// One operation whose results' shapes follow from data, which runs as the program called it, whatever the shapes; or
  /// one that gives its results a history of its own.
  bool is_bare = false;
  bool reads_overwritten = false;  ///< memory of an input to which a later segment writes
  Observation observation;         ///< after it
};

/// Cuts a recorded trace where it checks data, and around what gives its results a history of its own. Each segment
/// gives what later ones, or the caller, need of it. nullopt: a value that is neither tensor nor number lives across a
/// check.
[[nodiscard]] std::optional<std::vector<Segment>> cut_at_checks(const ir::Trace& recorded);

/// Whether two segments, of traces of one function, do the same with the same values. Outputs may differ.
[[nodiscard]] bool same_segment(const Segment& left, const Segment& right);

/// The segment with these outputs, of the recorded trace, besides its own.
[[nodiscard]] Segment with_outputs(Segment segment, std::span<const ir::ValueId> outputs);

/// The inputs, by position, that operations update as running statistics: that does not move their version counters.
[[nodiscard]] std::vector<std::uint32_t> inputs_with_statistics(const ir::Trace& recorded);

/// The inputs with running statistics that are updated before an operation that may raise an error.
[[nodiscard]] std::vector<std::uint32_t> statistics_before_errors(const ir::Trace& recorded);

/// The trace in which operations update copies of running statistics, which end up in the originals: a run that stops
/// at a check has written nothing.
[[nodiscard]] ir::Trace defer_effects(const ir::Trace& recorded);

}  // namespace thunder::dispatch
