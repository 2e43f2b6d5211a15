#pragma once

#include "interpreter/provenance/tracker_state.h"

namespace thunder::interpreter {

/// An object from outside to which the program drops the last reference, where somebody can see that it dies: it has a
/// `__del__`, or a weak reference with a callback, or one that the program looked at.
struct Death {
  py::Ref object;                 ///< null: there is none
  ir::SourceLocation location{};  ///< the line that writes first to what held it
};

/// To be asked at the end of a trace, before the journal is rolled back. Until then the trace keeps these objects
/// alive.
[[nodiscard]] Death find_seen_death(const TrackerState& state);

}  // namespace thunder::interpreter
