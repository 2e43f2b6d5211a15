#pragma once

#include <string>
#include <unordered_map>

#include "dispatch/call/trace_options.h"
#include "dispatch/capture/source_locator.h"
#include "interpreter/provenance/tracker.h"
#include "tracer/trace_session.h"

namespace thunder::dispatch {

/// Watches a trace for print, warnings, logging, random numbers of Python and NumPy, clocks and files.
class SharpEdgeWatch {
 public:
  SharpEdgeWatch(SharpEdges mode, SourceLocator& locator) : mode_(mode), locator_(locator) {}

  /// Enters the functions in Python that are watched.
  void add_substitutes(interpreter::TrackerOptions& options);
  /// Before a call of C code; false with a Python exception set.
  bool allows(PyObject* callable, const interpreter::NativeCall& call, const interpreter::Tracker& tracker);

  /// `TrackerOptions::admit_look`.
  bool allows_look(PyObject* object, bool is_given, const interpreter::Tracker& tracker);

  /// Until `end_trial` nothing that is watched happens, whatever the mode.
  void begin_trial() {
    in_trial_ = true;
    observed_in_trial_ = false;
    refused_before_ = tracer::take_refusal();
  }
  [[nodiscard]] bool is_in_trial() const { return in_trial_; }
  /// Whether nothing was about to happen.
  [[nodiscard]] bool end_trial() {
    in_trial_ = false;
    tracer::note_refusal(refused_before_);
    return !observed_in_trial_;
  }

 private:
  struct Edge {
    std::string name;         ///< `time.time`
    std::string consequence;  ///< how later calls differ from eager
  };
  void fill();
  void add_signal_substitutes(interpreter::TrackerOptions& options);
  void add_methods(const char* module, const char* type, const char* names, const char* consequence);
  bool report(const Edge& edge);

  SharpEdges mode_;
  std::string refused_before_;  ///< the trial
  SourceLocator& locator_;
  bool in_trial_ = false;
  bool observed_in_trial_ = false;
  std::unordered_map<const void*, Edge> edges_;  ///< by the identity of the C code
};

}  // namespace thunder::dispatch
