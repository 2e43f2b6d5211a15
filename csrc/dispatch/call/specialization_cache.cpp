#include "dispatch/call/specialization_cache.h"

#include <algorithm>
#include <utility>

#include "base/timer.h"
#include "dispatch/call/outside_trace.h"
#include "dispatch/call/overrides.h"
#include "dispatch/python/errors.h"
#include "interpreter/loop/signal_handlers.h"

namespace thunder::dispatch {
namespace {

constexpr std::size_t kLimit = 64;
constexpr std::size_t kDropped = 16;        ///< at once, as the guards of the others are put together anew
constexpr std::uint64_t kHitsForEach = 64;  ///< a trace takes about as long as so many calls
constexpr std::size_t kMostExplained = 256;
/// Traces that failed in a row and told nothing about later calls, after which few calls are traced.
constexpr std::size_t kMostFailedTraces = 16;
constexpr std::size_t kCallsUntilNextTrace = 64;  ///< at first: twice as many after each trace that fails
/// Traces that looked at data and failed for one cause, after which calls with the same guards run in eager.
constexpr std::size_t kMostRefusals = 3;

/// `thunder.errors.EagerFallbackWarning`; null, with an error set, where it is not found.
py::Ref eager_fallback_warning() {
  const py::Ref module = py::Ref::steal(py::import_module("thunder.errors"));
  return py::Ref::steal(module ? PyObject_GetAttrString(module.get(), "EagerFallbackWarning") : nullptr);
}

/// Waits for a lock with the GIL released: its holder needs the GIL to go on.
class TraceLock {
 public:
  explicit TraceLock(std::recursive_mutex& mutex) : mutex_(mutex) {
    if (mutex_.try_lock()) return;
    PyThreadState* state = PyEval_SaveThread();
    mutex_.lock();
    PyEval_RestoreThread(state);
  }
  ~TraceLock() { mutex_.unlock(); }
  TraceLock(const TraceLock&) = delete;
  TraceLock& operator=(const TraceLock&) = delete;

 private:
  std::recursive_mutex& mutex_;
};

/// A callable as people know it: a bound method and a partial by the function behind them, an object by the method of
/// its class.
std::string name_of(py::Borrowed callable) {
  if (PyMethod_Check(callable)) return interpreter::describe(PyMethod_GET_FUNCTION(callable));
  const std::string name = interpreter::describe(callable);
  const std::string type = Py_TYPE(callable)->tp_name;
  if (name != "an object of type " + type) return name;
  const bool is_partial = type == "functools.partial";
  const py::Ref function = py::Ref::steal(is_partial ? PyObject_GetAttrString(callable, "func") : nullptr);
  return function ? type + " of " + name_of(function.get()) : type + ".__call__";
}

bool is_error_of_linear_algebra(PyObject* error) {
  const py::Ref module = py::Ref::steal(py::import_module("torch.linalg"));
  const py::Ref type = py::Ref::steal(module ? PyObject_GetAttrString(module.get(), "LinAlgError") : nullptr);
  if (!type) PyErr_Clear();
  return type && PyErr_GivenExceptionMatches(error, type.get()) != 0;
}

}  // namespace

// The exception itself would keep the frames of the trace alive.
SpecializationCache::Failure SpecializationCache::Failure::of_trace(const TraceOutcome& outcome) {
  const py::Ref error = take_error();
  std::string cause = describe_error(error.get(), outcome.location, outcome.definition);
  return {std::move(cause), outcome.location, outcome.context};
}

SpecializationCache::Failure SpecializationCache::Failure::of_program() {
  const py::Ref error = take_error();
  Failure failure{error ? describe_error(error.get(), {}) : std::string(), {}, nullptr, true};
  failure.can_be_observed = error && is_error_of_linear_algebra(error.get());
  return failure;
}

Served SpecializationCache::leave_to_eager(Failure& failure) const {
  if (PyErr_Occurred() != nullptr && raises_errors_of_programs()) return Served::kYes;
  failure = Failure::of_program();
  return Served::kEager;
}

Served SpecializationCache::try_all(const ThreadState& now, const interpreter::CallArguments& arguments,
                                    PyObject** result, Failure& failure) {
  const std::shared_ptr<const Sets> sets = sets_;
  for (const auto& set : *sets) {
    const Served served = set->call(arguments, set->made_under(now), result);
    if (served == Served::kNo) continue;
    if (served == Served::kYes) ++hits_;
    return served == Served::kEager ? leave_to_eager(failure) : served;
  }
  return Served::kNo;
}

Served SpecializationCache::call_first(const interpreter::CallArguments& arguments, PyObject** result,
                                       Failure& failure) {
  const std::shared_ptr<const Sets> sets = sets_;
  const Served served = sets->front()->call_first(arguments, result);
  if (served == Served::kYes) ++hits_;
  if (served == Served::kEager) return leave_to_eager(failure);
  if (served != Served::kNo) return served;
  const Miss miss = explain_miss(*sets, sets->front()->specializations().front()->state, arguments);
  PyErr_Format(PyExc_ValueError, "thunder.jit: cache='same input': expected arguments like those of the first call: %s",
               summary(miss).c_str());
  return Served::kYes;
}

void SpecializationCache::note_miss(const ThreadState& now, const interpreter::CallArguments& arguments) {
  if (explained_.size() == kMostExplained) explained_.erase(explained_.begin() + 1);
  Miss miss = explain_miss(*sets_, now, arguments);
  miss.call = hits_ + misses_ + eager_calls_ + 1;
  miss.specialization = made_;
  explained_.push_back(std::move(miss));
}

void SpecializationCache::drop_dead() {
  const auto has_dead = [](const std::shared_ptr<GuardedSet>& set) { return set->has_dead(); };
  if (std::ranges::none_of(*sets_, has_dead)) return;
  Sets sets;
  for (const auto& set : *sets_) {
    auto kept = has_dead(set) ? set->without_dead() : set;
    if (!kept->specializations().empty()) sets.push_back(std::move(kept));
  }
  sets_ = std::make_shared<const Sets>(std::move(sets));
}

bool SpecializationCache::make_room() {
  if (hits_ - hits_before_room_ < kDropped * kHitsForEach) return false;
  hits_before_room_ = hits_;
  Sets sets = *sets_;
  sets.front() = sets.front()->without_least_used(kDropped);
  sets_ = std::make_shared<const Sets>(std::move(sets));
  return true;
}

Served SpecializationCache::call_past_limit(const interpreter::CallArguments& arguments, PyObject** result,
                                            Failure& failure) {
  const bool may_trace = stop_of_last_call(*sets_).has_value() || has_overrides(module_);
  if (!std::exchange(warned_, true)) {
    const std::string cause = summary(explain_miss(*sets_, ThreadState::now(), arguments));
    const int status = PyErr_WarnFormat(
        PyExc_RuntimeWarning, 1,
        "thunder.jit: %zu specializations of one function; calls that need another one %s from now on. "
        "What changed last: %s%s. Pass it as a tensor, or keep it the same between calls; thunder.explain_misses tells "
        "about the others",
        kLimit,
        has_overrides(module_) ? "are traced for themselves"
        : may_trace            ? "are traced for themselves or run in eager, whichever is faster,"
                               : "run in eager",
        cause.c_str(), most_often(explained_).c_str());
    if (status < 0) return Served::kYes;
  }
  if (!may_trace) return Served::kEager;
  failure.is_timed = !has_overrides(module_) && past_limit_.next() == PastLimit::Way::kEager;
  if (failure.is_timed) return Served::kEager;
  const Timer timer;
  const Served served = trace_and_run(arguments, /*keeps=*/false, result, failure);
  past_limit_.note(PastLimit::Way::kTrace, timer.seconds());
  return served;
}

std::shared_ptr<GuardedSet> SpecializationCache::set_of(std::shared_ptr<const Specialization> made) const {
  auto set = std::make_shared<GuardedSet>();
  set->add(std::move(made), made_);
  return set;
}

void SpecializationCache::keep(std::shared_ptr<GuardedSet> alone) {
  const std::size_t number = made_++;
  if (sets_->empty() || sets_->back()->is_full()) {
    Sets sets = *sets_;
    sets.push_back(std::move(alone));
    sets_ = std::make_shared<const Sets>(std::move(sets));
  } else {
    sets_->back()->add(alone->specializations().front(), number);
  }
}

Served SpecializationCache::trace_and_run(const interpreter::CallArguments& arguments, bool keeps, PyObject** result,
                                          Failure& failure) {
  const StateOfCall state;
  const interpreter::SignalScope signals([&] { return state.leave_trace(); });
  if (PyErr_Occurred() != nullptr) return Served::kYes;
  if (keeps) note_miss(ThreadState::now(), arguments);
  ++misses_;
  // PyTorch's meta kernels in Python import torch._dynamo, which replaces functions such as torch.manual_seed.
  const bool may_fail = PyDict_GetItemString(PyImport_GetModuleDict(), "torch._dynamo") == nullptr;
  // Another thread may change what the program has read before the trace runs.
  const bool has_threads = PyThreadState_Next(PyInterpreterState_ThreadHead(PyInterpreterState_Get())) != nullptr;
  Attempts left{.for_guards = has_threads ? 5 : may_fail ? 1 : 0, .for_data = attempts_for_data_};
  Served served = Served::kNo;
  while (served == Served::kNo) served = trace_once(arguments, keeps, left, result, failure);
  return served;
}

bool SpecializationCache::raises_errors_of_programs() const {
  return how_.full_graph || compile::has_extensions(options_) || has_overrides(module_);
}

bool SpecializationCache::may_run_eager(const TraceOutcome& outcome, Failure& failure) const {
  // Errors that the module itself would raise are raised; of a refusal of thunder's, `run_eager` tells the cause.
  const bool is_refused = PyErr_ExceptionMatches(PyExc_NotImplementedError) != 0;
  if (how_.full_graph || !outcome.may_run_eager || (has_overrides(module_) && !is_refused)) {
    add_location(outcome.location, outcome.definition);
    return false;
  }
  failure = Failure::of_trace(outcome);
  return true;
}

bool SpecializationCache::is_to_stay(const TraceOutcome& outcome, const Failure& failure) const {
  if (outcome.made == nullptr || mode_ != CacheMode::kConstantValues || has_overrides(module_)) return false;
  if (!outcome.made->is_last_resort) return true;
  const auto earlier = refusals_.find(failure.cause);
  return earlier != refusals_.end() && earlier->second + 1 >= kMostRefusals;
}

void SpecializationCache::give_miss(bool is_noted, Failure& failure) {
  if (!is_noted || explained_.empty()) return;
  failure.miss = std::move(explained_.back());
  explained_.pop_back();
}

Served SpecializationCache::trace_once(const interpreter::CallArguments& arguments, bool keeps, Attempts& left,
                                       PyObject** result, Failure& failure) {
  const std::vector<std::shared_ptr<const Specialization>> known = all();
  TraceOptions how = how_;
  how.computed = left.computed;
  const TraceOutcome outcome = specialize({callable_, module_}, arguments, known, options_, how);
  const std::shared_ptr<const Specialization>& made = outcome.made;
  if (PyErr_Occurred() != nullptr && outcome.is_disturbed && left.for_guards-- > 0) {
    PyErr_Clear();
    return Served::kNo;
  }
  if (PyErr_Occurred() != nullptr) {
    for (const auto& transform : options_.transforms) {
      if (transform->note_failure != nullptr) transform->note_failure();
    }
    --misses_;
    const bool runs_eager = may_run_eager(outcome, failure);
    give_miss(keeps, failure);
    failure.is_kept = runs_eager && keeps && is_to_stay(outcome, failure);
    failure.follows_data = made == nullptr || made->is_last_resort;
    if (failure.is_kept) keep(set_of(made));
    return runs_eager ? Served::kEager : Served::kYes;
  }
  last_compiled_ = made;
  const std::shared_ptr<GuardedSet> alone = set_of(made);
  alone->keep_values(true);
  const Served served = mode_ == CacheMode::kSameInput ? alone->call_first(arguments, result)
                                                       : alone->call(arguments, interpreter::Candidates{1}, result);
  if (served == Served::kNo) {
    const Served then = trace_again(made, *alone, arguments, left, failure);
    if (then == Served::kEager) give_miss(keeps, failure);
    return then;
  }
  alone->keep_values(false);
  if (keeps) keep(alone);
  if (served == Served::kEager) return leave_to_eager(failure);
  failed_traces_ = 0;
  refusals_.clear();
  return served;
}

// While it is traced, a program computes what it reads operation by operation; compiled segments may round otherwise.
// The next trace takes what they gave.
Served SpecializationCache::trace_again(const std::shared_ptr<const Specialization>& made, GuardedSet& made_alone,
                                        const interpreter::CallArguments& arguments, Attempts& left, Failure& failure) {
  const std::vector<interpreter::GuardFailure> failures = made_alone.failures(0, arguments);
  if (!failures.empty() && left.for_guards-- > 0) return Served::kNo;
  const Stop stop = made_alone.last_stop().value_or(Stop());
  const bool is_of_data = failures.empty() && made_alone.last_stop() && stop.unmet.empty();
  if (is_of_data) left.computed = made_alone.take_values();
  if (is_of_data && !left.computed.empty() && left.for_data-- > 0) return Served::kNo;
  if (is_of_data) {
    attempts_for_data_ /= 2;
    PyErr_SetString(
        PyExc_RuntimeError,
        "thunder.jit: dispatch: a number or shape that is read from a tensor is another one in the compiled "
        "program than it was while the program was traced, for the same arguments");
  } else if (!stop.unmet.empty()) {
    PyErr_Format(PyExc_RuntimeError,
                 "thunder.jit: dispatch: the program that was made for this call is for sizes for which %s",
                 stop.unmet.c_str());
  } else if (failures.empty()) {
    PyErr_SetString(PyExc_RuntimeError,
                    "thunder.jit: dispatch: the sizes of the inputs, or the memory that they share, are not those of "
                    "the program that was made for them");
  } else {
    const interpreter::GuardInfo guard = made->guards.info(failures.front().guard);
    PyErr_Format(PyExc_RuntimeError,
                 "thunder.jit: dispatch: the guard on %s fails right after the trace that made it; "
                 "expected %s, got %s. The function changes it in a way that thunder does not see",
                 guard.expression.c_str(), guard.expected.c_str(), failures.front().found.c_str());
  }
  if (how_.full_graph) return Served::kYes;
  TraceOutcome outcome;
  outcome.location = stop.location;
  outcome.context = made->context;
  failure = Failure::of_trace(outcome);
  return Served::kEager;
}

bool SpecializationCache::warn_of_eager(const Failure& failure) {
  if (failure.miss) {
    explained_.push_back(*failure.miss);
    explained_.back().reason = "it ran in eager: " + failure.cause;
  }
  const auto [told, is_new] = warned_of_.try_emplace(failure.cause, failure.is_kept);
  if (!is_new && (told->second || !failure.is_kept)) return true;
  told->second = failure.is_kept;
  const py::Ref type = eager_fallback_warning();
  if (!type) return false;
  const std::string name = name_of(callable_);
  if (failure.is_of_program) {
    return PyErr_WarnFormat(type.get(), 1,
                            "thunder.jit: %s ran in eager this time, as its compiled program raised what it does not "
                            "raise itself: %s",
                            name.c_str(), failure.cause.c_str()) == 0;
  }
  return PyErr_WarnFormat(type.get(), 1,
                          "thunder.jit: %s runs in eager%s, as it could not be compiled: %s\n"
                          "With fullgraph=True this is an error",
                          name.c_str(), failure.is_kept ? "" : " this time", failure.cause.c_str()) == 0;
}

bool SpecializationCache::warn_of_rare_traces() const {
  const py::Ref type = eager_fallback_warning();
  return type &&
         PyErr_WarnFormat(type.get(), 1,
                          "thunder.jit: %zu traces of %s failed in a row: calls that no program serves run in eager "
                          "from now on, but for one in %zu, then one in twice as many, which tries again. "
                          "thunder.explain_misses tells why each of them failed",
                          kMostFailedTraces, name_of(callable_).c_str(), kCallsUntilNextTrace) == 0;
}

PyObject* SpecializationCache::refuse_eager(const Failure& failure) const {
  try {
    const std::string cause =
        failure.cause.empty()
            ? "a mode of PyTorch, or a transform of torch.func, is active that compiled programs do not "
              "follow"
            : failure.cause;
    PyErr_Format(PyExc_RuntimeError, "thunder.jit: %s cannot run in eager, as %s. It was not compiled: %s",
                 interpreter::describe(callable_).c_str(), describe_overrides(module_).c_str(), cause.c_str());
  } catch (const PendingError&) {
  }
  return nullptr;
}

PyObject* SpecializationCache::run_eager(const interpreter::CallArguments& arguments, const Failure& failure) {
  if (has_overrides(module_)) return refuse_eager(failure);
  ++eager_calls_;
  const Timer timer;
  PyObject* result = PyObject_Vectorcall(callable_, arguments.values, arguments.positional, arguments.names);
  if (failure.is_timed) past_limit_.note(PastLimit::Way::kEager, timer.seconds());
  if (failure.cause.empty()) return result;
  if (result == nullptr) {
    add_location(failure.location);
    return nullptr;
  }
  if (failure.can_be_observed && !how_.observes_errors && !how_.full_graph) {
    // The program catches what others raised in its place: from now on it is traced with and without the error.
    // Others may be tracing meanwhile without errors: that is dropped, too.
    const TraceLock lock(tracing_);
    how_.observes_errors = true;
    clear();
  }
  bool are_rare_now = false;
  if (!failure.is_of_program && (failure.follows_data || !failure.is_kept)) {
    are_rare_now = ++failed_traces_ == kMostFailedTraces;
    ++refusals_[failure.cause];
  }
  if (!warn_of_eager(failure) || (are_rare_now && !warn_of_rare_traces())) Py_CLEAR(result);
  return result;
}

std::size_t SpecializationCache::calls_until_next_trace() const {
  constexpr std::size_t kMostDoublings = 32;
  return kCallsUntilNextTrace << std::min(failed_traces_ - kMostFailedTraces, kMostDoublings);
}

Served SpecializationCache::serve_new(const interpreter::CallArguments& arguments, std::size_t known, PyObject** result,
                                      Failure& failure) {
  const TraceLock lock(tracing_);
  // Another thread may have made what this call needs while it waited.
  if (mode_ == CacheMode::kSameInput && !sets_->empty()) return call_first(arguments, result, failure);
  if (mode_ == CacheMode::kConstantValues && count() != known) {
    const Served served = try_all(ThreadState::now(), arguments, result, failure);
    if (served != Served::kNo) return served;
  }
  if (failed_traces_ >= kMostFailedTraces && ++untraced_ < calls_until_next_trace()) return Served::kEager;
  untraced_ = 0;
  if (mode_ == CacheMode::kNoCaching) return trace_and_run(arguments, /*keeps=*/false, result, failure);
  // Only now: a later trace is often equal to that of a dead one, whose compiled program it shares.
  if (count() >= kLimit) drop_dead();
  if (count() >= kLimit && !make_room()) return call_past_limit(arguments, result, failure);
  return trace_and_run(arguments, /*keeps=*/true, result, failure);
}

PyObject* SpecializationCache::call(const interpreter::CallArguments& arguments) {
  PyObject* result = nullptr;
  Failure failure;
  if (has_unknown_layers() || is_autograd_observed()) return run_eager(arguments, failure);
  const std::size_t known = count();
  Served served = Served::kNo;
  if (mode_ == CacheMode::kSameInput && known > 0) {
    served = call_first(arguments, &result, failure);
  } else if (mode_ == CacheMode::kConstantValues) {
    served = try_all(ThreadState::now(), arguments, &result, failure);
  }
  // No guard holds for a proxy.
  if (served == Served::kNo && is_fx_tracing()) return run_eager(arguments, failure);
  if (served == Served::kNo) served = serve_new(arguments, known, &result, failure);
  // Without the lock, as eager code may wait for other threads that trace.
  return served == Served::kEager ? run_eager(arguments, failure) : result;
}

std::size_t SpecializationCache::count() const {
  std::size_t result = 0;
  for (const auto& set : *sets_) result += set->specializations().size();
  return result;
}

std::vector<std::shared_ptr<const Specialization>> SpecializationCache::all() const {
  std::vector<std::shared_ptr<const Specialization>> result;
  for (const auto& set : *sets_) {
    result.insert(result.end(), set->specializations().begin(), set->specializations().end());
  }
  return result;
}

double SpecializationCache::time_guards(const interpreter::CallArguments& arguments, std::uint64_t count) const {
  const std::shared_ptr<const Sets> sets = sets_;
  std::uint64_t accepted = 0;
  const Timer timer;
  for (std::uint64_t i = 0; i < count; ++i) {
    const ThreadState now = ThreadState::now();
    const bool found = std::ranges::any_of(*sets, [&](const std::shared_ptr<GuardedSet>& set) {
      return set->check(arguments, set->made_under(now)) != 0;
    });
    accepted += found ? 1 : 0;
  }
  const double seconds = timer.seconds();
  return accepted == count ? seconds / static_cast<double>(std::max<std::uint64_t>(count, 1)) : -1;
}

std::size_t SpecializationCache::check_count() const {
  std::size_t result = 0;
  for (const auto& set : *sets_) result += set->tree().check_count();
  return result;
}

std::uint64_t SpecializationCache::full_passes() const {
  std::uint64_t result = 0;
  for (const auto& set : *sets_) result += set->tree().full_passes();
  return result;
}

void SpecializationCache::clear() {
  const std::shared_ptr<const Sets> old = std::exchange(sets_, std::make_shared<const Sets>());
}

int SpecializationCache::visit(visitproc visitor, void* argument) const {
  for (const auto& set : *sets_) {
    if (const int status = set->visit(visitor, argument); status != 0) return status;
  }
  return 0;
}

}  // namespace thunder::dispatch
