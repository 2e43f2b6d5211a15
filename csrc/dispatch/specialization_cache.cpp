#include "dispatch/specialization_cache.h"

#include <utility>

namespace thunder::dispatch {
namespace {

constexpr std::size_t kLimit = 64;

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

PyObject* SpecializationCache::try_all(const ThreadState& now, const interpreter::CallArguments& arguments) {
  const std::shared_ptr<const List> list = list_;
  const std::size_t recent = recent_;
  for (std::size_t i = 0; i < list->size(); ++i) {
    // The one that ran last, then the others in their order.
    const std::size_t index = i == 0 ? recent : (i <= recent ? i - 1 : i);
    if (index >= list->size()) continue;
    const Specialization::Outcome outcome = (*list)[index]->call(now, arguments);
    if (outcome.failed_guard != interpreter::GuardProgram::kAccepted) continue;
    recent_ = index;
    ++hits_;
    return outcome.result;
  }
  return nullptr;
}

std::string SpecializationCache::why_not_last(const interpreter::CallArguments& arguments) const {
  const Specialization& last = *list_->back();
  const Specialization::Outcome outcome = last.call(last.state, arguments);
  if (outcome.failed_guard == Specialization::kValueChanged) return "a number or shape read from a tensor's data";
  if (outcome.failed_guard < 0) {
    Py_XDECREF(outcome.result);
    PyErr_Clear();
    return "the thread's state (grad mode, autocast, default dtype)";
  }
  return last.guards.info(outcome.failed_guard).expression;
}

PyObject* SpecializationCache::call_eagerly(const interpreter::CallArguments& arguments) {
  if (!std::exchange(warned_, true)) {
    const std::string cause = why_not_last(arguments);
    const int status = PyErr_WarnFormat(
        PyExc_RuntimeWarning, 1,
        "thunder.jit: %zu specializations of one function; calls that need another one run in eager from now on. "
        "What changed last: %s. Pass it as a tensor, or keep it the same between calls",
        kLimit, cause.c_str());
    if (status < 0) return nullptr;
  }
  return PyObject_Vectorcall(callable_, arguments.values, arguments.positional, arguments.names);
}

PyObject* SpecializationCache::trace_and_run(const interpreter::CallArguments& arguments) {
  std::shared_ptr<const Specialization> made = specialize(callable_, arguments, options_, full_graph_);
  if (made == nullptr) return nullptr;
  ++misses_;
  last_compiled_ = made;
  if (mode_ != CacheMode::kNoCaching) {
    List list = *list_;
    list.push_back(made);
    recent_ = list.size() - 1;
    list_ = std::make_shared<const List>(std::move(list));
  }
  const Specialization::Outcome outcome = made->call(made->state, arguments);
  if (outcome.failed_guard == interpreter::GuardProgram::kAccepted) return outcome.result;
  if (outcome.failed_guard == Specialization::kValueChanged) {
    PyErr_SetString(PyExc_RuntimeError,
                    "thunder.jit: dispatch: a number read from a tensor differs right after the trace that met it; "
                    "the function draws it from something that thunder does not see");
    return nullptr;
  }
  const interpreter::GuardInfo& guard = made->guards.info(outcome.failed_guard);
  PyErr_Format(PyExc_RuntimeError,
               "thunder.jit: dispatch: the guard on %s fails right after the trace that made it; "
               "expected %s. The function changes it in a way that thunder does not see",
               guard.expression.c_str(), guard.expected.c_str());
  return nullptr;
}

PyObject* SpecializationCache::call(const interpreter::CallArguments& arguments) {
  if (mode_ != CacheMode::kNoCaching) {
    const ThreadState now = ThreadState::now();
    PyObject* result = try_all(now, arguments);
    if (result != nullptr || PyErr_Occurred() != nullptr) return result;
  }
  const TraceLock lock(tracing_);
  if (mode_ != CacheMode::kNoCaching) {
    // Another thread may have made what this call needs while it waited.
    PyObject* result = try_all(ThreadState::now(), arguments);
    if (result != nullptr || PyErr_Occurred() != nullptr) return result;
  }
  return list_->size() < kLimit ? trace_and_run(arguments) : call_eagerly(arguments);
}

std::vector<std::shared_ptr<const Specialization>> SpecializationCache::all() const { return *list_; }

void SpecializationCache::clear() {
  const std::shared_ptr<const List> old = std::exchange(list_, std::make_shared<const List>());
  recent_ = 0;
}

int SpecializationCache::visit(visitproc visitor, void* argument) const {
  for (const auto& specialization : *list_) {
    if (const int status = specialization->guards.visit(visitor, argument); status != 0) return status;
    if (const int status = specialization->structure.visit(visitor, argument); status != 0) return status;
  }
  return 0;
}

}  // namespace thunder::dispatch
