#pragma once

#include <utility>
#include <vector>

#include "interpreter/provenance/writes.h"

namespace thunder::interpreter {

/// Calls of code in C, and of functions that something else stands for.
class NativeCalls {
 public:
  NativeCalls(TrackerState& state, Reads& reads, TraceTensors& tensors, Writes& writes)
      : state_(state), reads_(reads), tensors_(tensors), writes_(writes) {}

  /// `Observer::before_native_call`, whose convention holds for all here, and `before_python_call`.
  int before(const VectorCall& call, PyObject** result);
  int before_python(const VectorCall& call, PyObject** result);
  /// Has functions under functools.lru_cache forget what the trace computed for them; once it is put back.
  void forget_memoized();
  /// After a call that may have written to a container or attribute.
  void after_writes(const VectorCall& call);
  /// Whether the trace was refused for a function under functools.lru_cache, which has its result once the call has run
  /// in eager.
  [[nodiscard]] bool has_fresh_memos() const { return !fresh_memos_.empty(); }
  /// Whether a function under functools.lru_cache runs: eager code would not run it at each call.
  [[nodiscard]] bool in_memoized_call() const { return memoized_depth_ > 0; }

 private:
  /// A function in Python in place of a callable whose work in C would not be seen; null: none is needed.
  [[nodiscard]] py::Ref seen_from_c(PyObject* callable, bool is_called) const;
  [[nodiscard]] py::Ref called_by_c(PyObject* callable, PyObject* caller) const;
  /// Calls what reads attributes and items from C (`operator.attrgetter`), or is given such a callable, in Python.
  int call_getter(const VectorCall& call, PyObject** result);
  /// Calls a function that takes sizes with other lists in the place of those whose numbers change.
  int call_with_changing_lists(const VectorCall& call, PyObject** result);
  /// Calls what hashes the members of its arguments with lists in the place of iterators, whose members nobody sees.
  int call_with_members(const VectorCall& call, const NativeCall& native, NativeEffect effect, PyObject** result);
  int call_with_trace_tensors(const VectorCall& call, PyObject** result);
  int call_watched(const VectorCall& call, const NativeCall& native, PyObject** result);
  int intercept(PyObject* callable, const NativeCall& call, PyObject** result);
  int convert(PyObject* callable, const NativeCall& call, PyObject** result);
  /// Calls what the callable stands for, if it does.
  int call_unwrapped(const VectorCall& call, PyObject** result);
  int call_with_key(const VectorCall& call, NativeCall native, PyObject* key, PyObject** result);
  /// Calls code in C that must not write to memory from outside.
  PyObject* call_beside_memory(const VectorCall& call);
  int call_is(const VectorCall& call, const NativeCall& native, PyObject** result);
  int tell_identity(py::Borrowed object, PyObject** result);
  void note_copied(py::Borrowed object);
  void note_globals(const VectorCall& call);
  /// The dict that `exec` or `eval` get as globals, if code which runs there reads and writes it by instructions that
  /// are observed; null for all else.
  [[nodiscard]] PyObject* observed_globals(const NativeCall& call) const;
  int call_alias(const VectorCall& call, PyObject** result);
  int call_by_special_method(const VectorCall& call, PyObject** result);
  int call_format(const NativeCall& native, PyObject** result);
  bool write_slot(const VectorCall& call);
  /// Code that nobody observes is about to get these arguments.
  bool look_for_unobserved(const VectorCall& call);
  int call_tensor_method(const VectorCall& call, const NativeCall& native, PyObject** result);

  // --- memoized_calls.cpp
  int call_memoized(const VectorCall& call, PyObject** result);
  void guard_memo(PyObject* function, PyObject* first, PyObject* result);
  [[nodiscard]] std::vector<py::Ref> memo_arguments(const VectorCall& call);
  int refuse_memo(PyObject* function, py::Ref key);
  [[nodiscard]] bool holds_traced(py::Borrowed value, int depth) const;
  [[nodiscard]] py::Ref run_memoized(const VectorCall& call, const std::vector<py::Ref>& owned, bool* is_new,
                                     bool* has_effects);
  int call_memoized_with_numbers(const VectorCall& call, PyObject** result);
  int refuse_memo_of_numbers();
  [[nodiscard]] bool holds_number(py::Borrowed value, int depth) const;
  [[nodiscard]] bool is_plain_tuple(py::Borrowed value) const;
  [[nodiscard]] py::Ref with_numbers_of_now(py::Borrowed value) const;
  [[nodiscard]] bool is_now(py::Borrowed value, py::Borrowed plain) const;
  /// Makes a call with other arguments than the program's.
  int call_seen(const VectorCall& call, PyObject** result);
  /// Ends a call that gave `value` (stolen), or raised.
  int finish(PyObject* value, PyObject** result);

  // --- call_effects.cpp: reads and writes that functions in C make in their arguments
  bool apply_effect(const NativeCall& call, NativeEffect effect);
  bool apply_to_container(Node* node, const NativeCall& call, NativeEffect effect);
  /// Reads what code in C may see in the arguments of a call; true when real tensors are among it.
  bool read_arguments(const NativeCall& native, const VectorCall& call);
  void look_up_for(NativeEffect effect, PyObject* argument);
  /// Reads what is inside; an iterator from outside is refused.
  bool consume(py::Borrowed value);
  bool consume_all(const NativeCall& call);
  bool consume_pairs(const NativeCall& call);
  void consume_pair(py::Borrowed pair, py::Borrowed dict);
  bool update_dict(Node& dict, const NativeCall& call);

  TrackerState& state_;
  Reads& reads_;
  TraceTensors& tensors_;
  Writes& writes_;
  std::vector<std::pair<py::Ref, py::Ref>> memory_;  ///< memory that the next call in C must not write to, with copies
  int memoized_depth_ = 0;
  std::vector<std::pair<py::Ref, py::Ref>> fresh_memos_;  ///< functions under functools.lru_cache, with keys
  std::vector<py::Ref> copied_;  ///< objects of which `copy.deepcopy` asked which ones they are
};

}  // namespace thunder::interpreter
