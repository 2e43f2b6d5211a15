#include "dispatch/specialization_cache.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace thunder::dispatch {
namespace {

constexpr std::size_t kLimit = 64;
constexpr std::size_t kMostExplained = 256;

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

}  // namespace

bool SpecializationCache::try_all(const ThreadState& now, const interpreter::CallArguments& arguments,
                                  PyObject** result) {
  const std::shared_ptr<const Sets> sets = sets_;
  for (const auto& set : *sets) {
    if (!set->call(arguments, set->made_under(now), result)) continue;
    ++hits_;
    return true;
  }
  return false;
}

PyObject* SpecializationCache::call_first(const interpreter::CallArguments& arguments) {
  const std::shared_ptr<const Sets> sets = sets_;
  PyObject* result = nullptr;
  if (sets->front()->call_first(arguments, &result)) {
    ++hits_;
    return result;
  }
  const Miss miss = explain_miss(*sets, sets->front()->specializations().front()->state, arguments);
  PyErr_Format(PyExc_ValueError, "thunder.jit: cache='same input': expected arguments like those of the first call: %s",
               summary(miss).c_str());
  return nullptr;
}

void SpecializationCache::note_miss(const ThreadState& now, const interpreter::CallArguments& arguments) {
  if (explained_.size() == kMostExplained) explained_.erase(explained_.begin() + 1);
  Miss miss = explain_miss(*sets_, now, arguments);
  miss.call = hits_ + misses_ + 1;
  explained_.push_back(std::move(miss));
}

PyObject* SpecializationCache::call_past_limit(const interpreter::CallArguments& arguments) {
  const bool looks_at_data = stop_of_last_call(*sets_).has_value();
  if (!std::exchange(warned_, true)) {
    const std::string cause = summary(explain_miss(*sets_, ThreadState::now(), arguments));
    const int status = PyErr_WarnFormat(
        PyExc_RuntimeWarning, 1,
        "thunder.jit: %zu specializations of one function; calls that need another one %s from now on. "
        "What changed last: %s. Pass it as a tensor, or keep it the same between calls; thunder.explain_misses tells "
        "about the others",
        kLimit, looks_at_data ? "are traced for themselves" : "run in eager", cause.c_str());
    if (status < 0) return nullptr;
  }
  if (looks_at_data) return trace_and_run(arguments, /*keeps=*/false);
  return PyObject_Vectorcall(callable_, arguments.values, arguments.positional, arguments.names);
}

std::shared_ptr<GuardedSet> SpecializationCache::keep(const std::shared_ptr<const Specialization>& made) {
  if (sets_->empty() || sets_->back()->is_full()) {
    auto set = std::make_shared<GuardedSet>();
    set->add(made);
    Sets sets = *sets_;
    sets.push_back(set);
    sets_ = std::make_shared<const Sets>(std::move(sets));
    return set;
  }
  sets_->back()->add(made);
  return sets_->back();
}

PyObject* SpecializationCache::trace_and_run(const interpreter::CallArguments& arguments, bool keeps) {
  if (keeps) note_miss(ThreadState::now(), arguments);
  ++misses_;
  PyObject* result = nullptr;
  // PyTorch's meta kernels in Python import torch._dynamo, which replaces functions such as torch.manual_seed.
  const bool may_fail = PyDict_GetItemString(PyImport_GetModuleDict(), "torch._dynamo") == nullptr;
  // Another thread may change what the program has read before the trace runs.
  const bool has_threads = PyThreadState_Next(PyInterpreterState_ThreadHead(PyInterpreterState_Get())) != nullptr;
  const int retries = has_threads ? 5 : may_fail ? 1 : 0;
  for (int i = 0; i < retries; ++i) {
    if (trace_once(arguments, keeps, /*may_fail=*/true, &result)) return result;
  }
  trace_once(arguments, keeps, /*may_fail=*/false, &result);
  return result;
}

bool SpecializationCache::trace_once(const interpreter::CallArguments& arguments, bool keeps, bool may_fail,
                                     PyObject** result) {
  const std::vector<std::shared_ptr<const Specialization>> known = all();
  std::vector<const PiecePath*> paths;
  for (const auto& specialization : known) {
    if (!specialization->path.empty()) paths.push_back(&specialization->path);
  }
  std::shared_ptr<const Specialization> made = specialize(callable_, arguments, paths, options_, how_);
  if (made == nullptr) {
    if (keeps && !explained_.empty()) explained_.pop_back();
    --misses_;
    return true;
  }
  last_compiled_ = made;
  const std::shared_ptr<GuardedSet> set = keeps ? keep(made) : std::make_shared<GuardedSet>();
  if (!keeps) set->add(made);
  const std::size_t index = set->specializations().size() - 1;
  const bool is_served = mode_ == CacheMode::kSameInput
                             ? set->call_first(arguments, result)
                             : set->call(arguments, interpreter::Candidates{1} << index, result);
  if (is_served) return true;
  const std::vector<interpreter::GuardFailure> failures = set->failures(index, arguments);
  if (may_fail && !failures.empty()) return false;
  if (failures.empty()) {
    PyErr_SetString(PyExc_RuntimeError,
                    "thunder.jit: dispatch: a number read from a tensor differs right after the trace that met it; "
                    "the function draws it from something that thunder does not see");
    return true;
  }
  const interpreter::GuardInfo& guard = made->guards.info(failures.front().guard);
  PyErr_Format(PyExc_RuntimeError,
               "thunder.jit: dispatch: the guard on %s fails right after the trace that made it; "
               "expected %s, got %s. The function changes it in a way that thunder does not see",
               guard.expression.c_str(), guard.expected.c_str(), failures.front().found.c_str());
  return true;
}

PyObject* SpecializationCache::call(const interpreter::CallArguments& arguments) {
  if (is_autograd_observed()) {
    return PyObject_Vectorcall(callable_, arguments.values, arguments.positional, arguments.names);
  }
  PyObject* result = nullptr;
  const std::size_t known = count();
  if (mode_ == CacheMode::kSameInput && known > 0) return call_first(arguments);
  if (mode_ == CacheMode::kConstantValues && try_all(ThreadState::now(), arguments, &result)) return result;
  const TraceLock lock(tracing_);
  // Another thread may have made what this call needs while it waited.
  if (mode_ == CacheMode::kSameInput && !sets_->empty()) return call_first(arguments);
  const bool is_news = mode_ == CacheMode::kConstantValues && count() != known;
  if (is_news && try_all(ThreadState::now(), arguments, &result)) return result;
  if (mode_ == CacheMode::kNoCaching) return trace_and_run(arguments, /*keeps=*/false);
  return count() < kLimit ? trace_and_run(arguments, /*keeps=*/true) : call_past_limit(arguments);
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
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < count; ++i) {
    const ThreadState now = ThreadState::now();
    const bool found = std::ranges::any_of(*sets, [&](const std::shared_ptr<GuardedSet>& set) {
      return set->check(arguments, set->made_under(now)) != 0;
    });
    accepted += found ? 1 : 0;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
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
