// Calls of functions under functools.lru_cache.
#include <algorithm>
#include <utility>

#include "interpreter/provenance/native_calls.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/memoized.h"

namespace thunder::interpreter {

/// Whether a value that a memoized function gave holds tensors of the trace.
bool NativeCalls::holds_traced(py::Borrowed value, int depth) const {
  if (state_.hooks.is_traced(value)) return true;
  constexpr int kDeepest = 4;
  if (depth > kDeepest) return false;
  const auto any_of = [&](PyObject* const* items, Py_ssize_t count) {
    return std::any_of(items, items + count, [&](PyObject* item) { return holds_traced(item, depth + 1); });
  };
  if (PyList_Check(value) || PyTuple_Check(value)) return any_of(PySequence_Fast_ITEMS(value), Py_SIZE(value));
  const py::Ref attributes = PyDict_Check(value) ? py::Ref::share(value) : instance_dict(value);
  PyObject *key, *item;
  Py_ssize_t position = 0;
  while (attributes && PyDict_Next(attributes.get(), &position, &key, &item)) {
    if (holds_traced(item, depth + 1)) return true;
  }
  return false;
}

/// The call with tensors from outside in the place of their trace tensors. Caches find results by these, and by which
/// objects others are.
std::vector<py::Ref> NativeCalls::memo_arguments(const VectorCall& call) {
  std::vector<py::Ref> result;
  for (PyObject* argument : call.all()) {
    PyObject* real = state_.hooks.is_traced(argument) ? state_.hooks.original(argument) : nullptr;
    result.push_back(real == nullptr ? py::Ref::share(argument) : py::Ref::steal(real));
    Node* node = state_.provenance.find(result.back().get());
    if (node != nullptr) reads_.record_state_as(*node, StateKind::kIdentity);
  }
  return result;
}

/// Calls the function, whose cache may have the result. Tells whether it ran, and whether that did more than compute.
py::Ref NativeCalls::run_memoized(const VectorCall& call, const std::vector<py::Ref>& owned, bool* is_new,
                                  bool* has_effects) {
  std::vector<PyObject*> arguments{nullptr};
  for (const py::Ref& each : owned) arguments.push_back(each.get());
  const std::size_t count = call.count | PY_VECTORCALL_ARGUMENTS_OFFSET;
  const Node* node = state_.provenance.find(call.callable);
  PyObject* function = memoized_function(call.callable);
  if (node != nullptr && function != nullptr && state_.provenance.find(function) == nullptr) {
    reads_.admit_constant(function, expression(*node));
  }
  const long before = memo_misses(call.callable);
  const std::uint64_t writes = state_.journal.write_count();
  const std::size_t recorded = state_.hooks.recorded();
  ++memoized_depth_;
  py::Ref result = py::Ref::steal(PyObject_Vectorcall(call.callable, arguments.data() + 1, count, call.names));
  --memoized_depth_;
  *has_effects = state_.journal.write_count() != writes || state_.hooks.recorded() != recorded;
  const py::SavedError pending;
  *is_new = memo_misses(call.callable) != before;
  return result;
}

// The result of a function under functools.lru_cache stays in its cache, as in eager, where it is an object from
// outside from then on. What the trace computes or writes is of each call, and has no place there.
int NativeCalls::call_memoized(const VectorCall& call, PyObject** result) {
  const auto has_number = [this](PyObject* argument) { return holds_number(argument, 0); };
  if (std::ranges::any_of(call.all(), has_number)) return call_memoized_with_numbers(call, result);
  const std::vector<py::Ref> owned = memo_arguments(call);
  bool is_new = false;
  bool has_effects = false;
  *result = run_memoized(call, owned, &is_new, &has_effects).release();
  if (*result == nullptr) return -1;
  if (is_new && (has_effects || holds_traced(*result, 0))) {
    if (py::Ref key = newest_memo_key(call.callable)) {
      Py_CLEAR(*result);
      return refuse_memo(call.callable, std::move(key));
    }
    if (PyErr_Occurred() != nullptr) return -1;
  } else {
    guard_memo(call.callable, call.count == 0 ? nullptr : owned[0].get(), *result);
    const bool is_unknown = classify(*result, state_.hooks) == ConstantKind::kUnknown;
    const bool is_kept = is_unknown && !reads_.is_made(call.callable);
    if (is_kept && !is_real_tensor(*result, state_.hooks)) reads_.admit_constant(*result, describe(*result));
  }
  const int status = finish(*result, result);
  return PyErr_Occurred() != nullptr ? -1 : status;
}

/// Guards that the cache still has a result: eager runs the function again once it has not. What another such function
/// asked for is kept with that one's result.
void NativeCalls::guard_memo(PyObject* function, PyObject* first, PyObject* result) {
  Node* node = state_.provenance.find(function);
  if (node == nullptr || memoized_depth_ > 0) return;
  for (py::Ref& entry : memo_entries(function, first, result)) reads_.record_memo(*node, std::move(entry));
}

int NativeCalls::refuse_memo(PyObject* function, py::Ref key) {
  fresh_memos_.emplace_back(py::Ref::share(function), std::move(key));
  PyErr_Format(
      PyExc_NotImplementedError,
      "thunder.jit: %R, which caches its results, computes with tensors, or writes to something: this call runs "
      "in eager, where the cache gets the result, and later ones are compiled",
      function);
  return -1;
}

void NativeCalls::forget_memoized() {
  for (const auto& [function, key] : std::exchange(fresh_memos_, {})) forget_memo(function.get(), key.get());
}

void MemoResults::keep(py::Borrowed result) {
  const bool is_dict = PyDict_Check(result) != 0;
  if (is_dict || PyList_Check(result)) {
    if (!objects_.insert(result).second) return;
    owned_.push_back(py::Ref::share(result));
  }
  if (PyList_Check(result) || PyTuple_Check(result)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(result); ++i) keep(PySequence_Fast_GET_ITEM(result, i));
  }
  PyObject *key, *item;
  Py_ssize_t position = 0;
  while (is_dict && PyDict_Next(result, &position, &key, &item)) keep(item);
}

bool MemoResults::may_write(py::Borrowed object) const {
  if (!objects_.contains(object)) return true;
  options_.refuse_numbers();
  return false;
}

// --- numbers of the trace among the arguments

namespace {

/// Whether an object is equal to others by what it holds, and not by which one it is: dicts and the like may be in one.
bool compares_contents(py::Borrowed object) {
  const bool is_of_program = PyType_Check(object) || PyModule_Check(object) || PyFunction_Check(object);
  return !is_of_program && PyObject_IS_GC(static_cast<PyObject*>(object)) != 0 &&
         Py_TYPE(object)->tp_hash != PyBaseObject_Type.tp_hash;
}

}  // namespace

/// Whether a key that is made of a value would hold numbers of the trace.
bool NativeCalls::holds_number(py::Borrowed value, int depth) const {
  if (state_.hooks.stands_for_number(value)) return true;
  constexpr int kDeepest = 4;
  const bool is_tensor = state_.hooks.is_traced(value) || state_.hooks.is_real_tensor(value);
  if (depth > kDeepest || is_tensor || !compares_contents(value)) return false;
  struct Search {
    const NativeCalls& calls;
    int depth;
  } search{*this, depth + 1};
  const auto visit = [](PyObject* part, void* argument) {
    const auto* parts = static_cast<Search*>(argument);
    return parts->calls.holds_number(part, parts->depth) ? 1 : 0;
  };
  return Py_TYPE(value)->tp_traverse(value, visit, &search) != 0;
}

/// A tuple that holds nothing but its items: a `torch.Size` is one.
bool NativeCalls::is_plain_tuple(py::Borrowed value) const {
  if (PyTuple_CheckExact(static_cast<PyObject*>(value))) return true;
  return PyTuple_Check(value) && state_.hooks.classify(value) == ConstantKind::kEquality;
}

/// The value with what numbers of the trace are now in their place; null without an exception: it holds them where
/// they cannot be replaced.
py::Ref NativeCalls::with_numbers_of_now(py::Borrowed value) const {
  if (state_.hooks.stands_for_number(value)) {
    return py::Ref::steal(state_.hooks.number_now(value));
  }
  if (!holds_number(value, 0)) return py::Ref::share(value);
  if (!is_plain_tuple(value)) return nullptr;
  py::Ref items = py::Ref::steal(PyTuple_New(PyTuple_GET_SIZE(value)));
  for (Py_ssize_t i = 0; items && i < PyTuple_GET_SIZE(value); ++i) {
    py::Ref item = with_numbers_of_now(PyTuple_GET_ITEM(value, i));
    if (!item) return nullptr;
    PyTuple_SET_ITEM(items.get(), i, item.release());
  }
  if (!items || PyTuple_CheckExact(static_cast<PyObject*>(value))) return items;
  return py::Ref::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(Py_TYPE(value)), items.get()));
}

/// Whether a value that holds numbers of the trace is now what code without a trace gave: plain containers and
/// constants.
bool NativeCalls::is_now(py::Borrowed value, py::Borrowed plain) const {
  if (state_.hooks.stands_for_number(value)) {
    const py::Ref now = py::Ref::steal(state_.hooks.number_now(value));
    return now && Py_TYPE(now.get()) == Py_TYPE(plain) && PyObject_RichCompareBool(now.get(), plain, Py_EQ) == 1;
  }
  if (Py_TYPE(value) != Py_TYPE(plain)) return false;
  if (is_plain_tuple(value) || PyList_CheckExact(static_cast<PyObject*>(value))) {
    if (Py_SIZE(value) != Py_SIZE(plain)) return false;
    for (Py_ssize_t i = 0; i < Py_SIZE(value); ++i) {
      if (!is_now(PySequence_Fast_GET_ITEM(value, i), PySequence_Fast_GET_ITEM(plain, i))) return false;
    }
    return true;
  }
  if (PyDict_CheckExact(static_cast<PyObject*>(value))) {
    PyObject *key, *item;
    Py_ssize_t position = 0;
    while (PyDict_Next(value, &position, &key, &item)) {
      PyObject* other = holds_number(key, 0) ? nullptr : PyDict_GetItemWithError(plain, key);
      if (other == nullptr || !is_now(item, other)) return false;
    }
    return PyDict_Size(value) == PyDict_Size(plain);
  }
  if (value == plain) return true;
  return classify(value, state_.hooks) == ConstantKind::kEquality && PyObject_RichCompareBool(value, plain, Py_EQ) == 1;
}

// A cache would keep numbers of the trace for eager code. So it gets the call with what they are now, as in eager, and
// the trace computes the result once more, with conditions on them. That is for functions that do nothing but compute
// numbers (einops has its shapes from one); with others the trace has plain numbers.
int NativeCalls::call_memoized_with_numbers(const VectorCall& call, PyObject** result) {
  VectorCall bare = call;
  bare.callable = memoized_function(call.callable);
  std::vector<py::Ref> now;
  for (const py::Ref& argument : memo_arguments(call)) {
    now.push_back(with_numbers_of_now(argument.get()));
    if (PyErr_Occurred() != nullptr) return -1;
    if (!now.back()) bare.callable = nullptr;
  }
  if (bare.callable == nullptr) return refuse_memo_of_numbers();
  bool is_new = false;
  bool has_effects = false;
  const py::Ref kept = run_memoized(call, now, &is_new, &has_effects);
  if (has_effects || (kept && holds_traced(kept.get(), 0))) {
    const py::SavedError pending;
    py::Ref key = is_new ? newest_memo_key(call.callable) : py::Ref();
    if (key) fresh_memos_.emplace_back(py::Ref::share(call.callable), std::move(key));
    return refuse_memo_of_numbers();
  }
  if (!kept && PyErr_ExceptionMatches(PyExc_Exception) == 0) return -1;
  PyErr_Clear();  // with conditions on its numbers, the second call raises it
  const std::uint64_t writes = state_.journal.write_count();
  ++memoized_depth_;
  *result = bare.make();
  --memoized_depth_;
  if (*result == nullptr && !kept) return -1;
  const bool has_written = state_.journal.write_count() != writes;
  if (*result == nullptr || !kept || has_written || !is_now(*result, kept.get())) {
    PyErr_Clear();
    Py_CLEAR(*result);
    return refuse_memo_of_numbers();
  }
  state_.memos.keep(*result);
  return finish(*result, result);
}

int NativeCalls::refuse_memo_of_numbers() {
  state_.options.refuse_numbers();
  return -1;
}

}  // namespace thunder::interpreter
