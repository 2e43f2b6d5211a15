#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dispatch/call/guarded_set.h"
#include "dispatch/call/miss.h"
#include "dispatch/call/past_limit.h"
#include "dispatch/call/size_history.h"
#include "interpreter/python/python_ref.h"

namespace thunder::dispatch {

enum class CacheMode : std::uint8_t {
  kConstantValues,  ///< one specialization for each set of values that was guarded
  kSameInput,       ///< the first one fits all calls; its arguments are checked, nothing else
  kNoCaching,       ///< a new trace for each call
};

/// The specializations of one callable. Calls look at a snapshot of the list; traces are made one at a time.
class SpecializationCache {
 public:
  SpecializationCache(const Traced& traced, compile::Options options, CacheMode mode, TraceOptions how)
      : callable_(traced.callable), module_(traced.module), options_(std::move(options)), mode_(mode), how_(how) {
    if (how.dynamic != DynamicSizes::kNone && mode == CacheMode::kConstantValues) how_.sizes = &sizes_;
  }

  /// A new reference, or null with an exception set.
  PyObject* call(const interpreter::CallArguments& arguments);

  [[nodiscard]] std::uint64_t hits() const { return hits_; }
  [[nodiscard]] std::uint64_t misses() const { return misses_; }
  /// Calls that ran in eager.
  [[nodiscard]] std::uint64_t eager_calls() const { return eager_calls_; }
  /// The specialization that was compiled last; null before.
  [[nodiscard]] std::shared_ptr<const Specialization> last() const { return last_compiled_; }
  /// In the order in which they were made.
  [[nodiscard]] std::vector<std::shared_ptr<const Specialization>> all() const;
  /// Why calls were traced, the first call included; the oldest are dropped.
  [[nodiscard]] const std::vector<Miss>& explained_misses() const { return explained_; }
  /// Seconds for one check of the guards of all specializations; negative when the call would be traced.
  [[nodiscard]] double time_guards(const interpreter::CallArguments& arguments, std::uint64_t count) const;
  /// Distinct checks of all specializations, and how often all of them were made because something had changed.
  [[nodiscard]] std::size_t check_count() const;
  [[nodiscard]] std::uint64_t full_passes() const;
  void clear();
  int visit(visitproc visitor, void* argument) const;

 private:
  static constexpr int kMostAttemptsForData = 8;
  using Sets = std::vector<std::shared_ptr<GuardedSet>>;

  /// Why a call runs in eager though it was to be compiled.
  struct Failure {
    std::string cause;                                ///< the exception of the trace or the program; empty: none
    ir::SourceLocation location;                      ///< where the operation that failed was called
    std::shared_ptr<const ir::TraceContext> context;  ///< keeps the name of the file
    bool is_of_program = false;                       ///< the compiled program raised it when it ran
    bool can_be_observed = false;                     ///< a trace can look whether it is raised
    bool is_kept = false;                             ///< later calls like this one run in eager at once
    bool follows_data = false;                        ///< other data may lead elsewhere
    std::optional<Miss> miss{};                       ///< why the call was traced
    bool is_timed = false;                            ///< past the limit, to choose between eager and traces
    /// Takes the pending exception, if there is one.
    static Failure of_trace(const TraceOutcome& outcome);
    static Failure of_program();
  };

  /// Lets a specialization serve the call. After `kEager`, `failure` holds what was raised, if anything.
  Served try_all(const ThreadState& now, const interpreter::CallArguments& arguments, PyObject** result,
                 Failure& failure);
  Served call_first(const interpreter::CallArguments& arguments, PyObject** result, Failure& failure);
  void note_miss(const ThreadState& now, const interpreter::CallArguments& arguments);
  /// For a call that no specialization fits: by tracing it, if that may be.
  Served serve_new(const interpreter::CallArguments& arguments, std::size_t known, PyObject** result, Failure& failure);
  /// Past the limit of specializations: warns once, naming the cause. A program that read other data may be traced for
  /// this call alone, with the segments that are known, where that is faster than eager; any other runs in eager.
  Served call_past_limit(const interpreter::CallArguments& arguments, PyObject** result, Failure& failure);
  /// Drops specializations that hold for no call any more.
  void drop_dead();
  /// Drops what was not used for longest, where the calls that were served since the last time pay for new traces.
  bool make_room();
  /// `keeps`: for later calls too.
  Served trace_and_run(const interpreter::CallArguments& arguments, bool keeps, PyObject** result, Failure& failure);
  /// How often a call may be traced again, as something was another thing right after the trace.
  struct Attempts {
    int for_guards = 0;
    int for_data = 0;
    std::vector<at::Tensor> computed{};  ///< see `TraceOptions`
  };
  /// `kNo`: the program is to be traced again.
  Served trace_once(const interpreter::CallArguments& arguments, bool keeps, Attempts& left, PyObject** result,
                    Failure& failure);
  /// The new specialization has not served the call that it was made for, as `made_alone`, a set of its own, tells.
  Served trace_again(const std::shared_ptr<const Specialization>& made, GuardedSet& made_alone,
                     const interpreter::CallArguments& arguments, Attempts& left, Failure& failure);
  /// The miss that was noted last tells why the call was traced, though nothing came of that.
  void give_miss(bool is_noted, Failure& failure);
  /// Errors of executors and transforms of the user, and with `fullgraph`, are raised.
  [[nodiscard]] bool raises_errors_of_programs() const;
  /// Leaves a call to eager code whose program raised the pending exception, or that is known to run in eager, unless
  /// the user wants to see the exception.
  Served leave_to_eager(Failure& failure) const;
  /// Whether a trace that failed leaves the call to eager code; `failure` then holds the pending exception.
  bool may_run_eager(const TraceOutcome& outcome, Failure& failure) const;
  /// Raises for a call that would run a module whose parameters transforms replaced as it is.
  PyObject* refuse_eager(const Failure& failure) const;
  PyObject* run_eager(const interpreter::CallArguments& arguments, const Failure& failure);
  /// Whether later calls run in eager at once whose guards are those of a trace that failed. Where the program looked
  /// at data before, other data may lead elsewhere: only once traces have failed alike so often that this is unlikely.
  [[nodiscard]] bool is_to_stay(const TraceOutcome& outcome, const Failure& failure) const;
  /// Tells the user once for each cause, and once more when it has calls run in eager at once; false with an exception
  /// set where warnings are errors.
  bool warn_of_eager(const Failure& failure);
  /// After many failed traces in a row, which tell that others will fail, too.
  [[nodiscard]] bool warn_of_rare_traces() const;
  [[nodiscard]] std::size_t calls_until_next_trace() const;
  /// A set with a new specialization alone.
  [[nodiscard]] std::shared_ptr<GuardedSet> set_of(std::shared_ptr<const Specialization> made) const;
  /// Keeps what is in such a set, or the set itself where the last one has no room.
  void keep(std::shared_ptr<GuardedSet> alone);
  [[nodiscard]] std::size_t count() const;

  PyObject* callable_;  ///< the owner of the cache keeps it, and the module
  PyObject* module_;    ///< see Traced
  compile::Options options_;
  CacheMode mode_;
  TraceOptions how_;
  SizeHistory sizes_;
  bool warned_ = false;
  PastLimit past_limit_;
  /// Causes of eager runs that the user was told, and whether it was told that later calls run in eager, too.
  std::map<std::string, bool> warned_of_;
  int attempts_for_data_ = kMostAttemptsForData;                 ///< see `Attempts`
  std::size_t failed_traces_ = 0;                                ///< in a row, of calls that eager code served
  std::size_t untraced_ = 0;                                     ///< calls since the last trace, after many failed ones
  std::map<std::string, std::size_t> refusals_;                  ///< how many of them, by their cause
  std::size_t made_ = 0;                                         ///< specializations that were kept at some time
  std::uint64_t hits_before_room_ = 0;                           ///< when room was made last
  std::shared_ptr<const Sets> sets_ = std::make_shared<Sets>();  ///< replaced under the GIL
  std::shared_ptr<const Specialization> last_compiled_;
  std::vector<Miss> explained_;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  std::uint64_t eager_calls_ = 0;
  std::recursive_mutex tracing_;
};

}  // namespace thunder::dispatch
