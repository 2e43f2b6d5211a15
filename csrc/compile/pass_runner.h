#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compile/options.h"
#include "compile/trace_history.h"
#include "ir/trace.h"
#include "passes/pass.h"

namespace thunder::compile {

/// The row of an operator of the dispatcher, or of a primitive that passes put into traces.
[[nodiscard]] const ir::Operator* find_operator(const std::string& name, const std::string& overload);

/// Looks at every trace of a compiled program, on any thread: those that steps make, and prologues and epilogues that
/// are asked for. For tests; null: nobody.
using TraceCheck = void (*)(const ir::Trace& trace);
void set_trace_check(TraceCheck check);
[[nodiscard]] TraceCheck trace_check();

/// Runs steps: times, keeps, verifies and dumps what they make, leaves out what is switched off, and turns a failure
/// into an InternalError that names the step and a script that reproduces it.
class PassRunner {
 public:
  /// Reads THUNDER_DISABLE_PASSES (names with commas) and THUNDER_DUMP (a folder). `valid` are the names that may be
  /// switched off; another one is a UserError.
  PassRunner(const Options& options, const std::vector<std::string>& valid);

  [[nodiscard]] bool is_enabled(const std::string& pass) const { return !disabled_.contains(pass); }
  /// Appends the pass's trace to the history. Histories are independent: different threads may run passes on them.
  void run(const passes::Pass& pass, TraceHistory& history) const;
  /// Runs a step that is no rewrite of one trace; `about` is the trace to reproduce its failure with.
  void run_step(const std::string& name, TraceHistory& about, const std::function<void()>& step) const;
  /// Appends a trace that `step` made.
  void keep(const std::string& step, ir::Trace trace, TraceHistory& history) const;

 private:
  void dump(const std::string& step, const TraceHistory& history) const;

  std::set<std::string> disabled_;
  bool verify_;
  std::string dump_folder_;
  std::string dump_prefix_;
};

}  // namespace thunder::compile
