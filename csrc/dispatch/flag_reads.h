#pragma once

#include <vector>

#include "interpreter/tracker.h"

namespace thunder::dispatch {

/// Settings of PyTorch that Python reads through functions in C: backends, precision, threads. What the program reads
/// of them is guarded, unless it has changed it itself.
class FlagReads {
 public:
  /// As they are before the program runs.
  void remember();
  void add_substitutes(interpreter::TrackerOptions& options, interpreter::Tracker& tracker) const;

 private:
  struct Flag {
    py::Ref function, before;
    const char* name;
  };
  std::vector<Flag> flags_;
};

}  // namespace thunder::dispatch
