#pragma once

#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "interpreter/loop/observer.h"
#include "interpreter/provenance/journal.h"
#include "interpreter/provenance/provenance.h"
#include "interpreter/provenance/tracker_native.h"
#include "interpreter/python/tensor_hooks.h"

namespace thunder::interpreter {

/// Functions and settings that the owner of a Tracker supplies.
struct TrackerOptions {
  /// The user's line that runs now. Called once for each new read.
  std::function<ir::SourceLocation()> locate;
  /// How the functions of a code object are executed; asked once for each code object.
  std::function<Treatment(PyCodeObject*)> treatment;
  /// Runs in place of a callable, by the convention of `Observer::before_native_call`; a method gets its object as the
  /// first argument.
  using Substitute =
      std::function<int(PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result)>;
  std::unordered_map<const void*, Substitute> substitutes;  ///< by `native_identity`
  void substitute(py::Borrowed callable, Substitute substitute) {
    substitutes[native_identity(callable)] = std::move(substitute);
  }
  /// Functions in C that hand their arguments on to functions in Python, and do not look into them; `native_identity`.
  std::unordered_set<const void*> hand_on;
  /// Functions in C that ask for one attribute of their arguments, or of what is in containers among them, and look at
  /// nothing else there: its name, by `native_identity`.
  std::unordered_map<const void*, py::Ref> asked_attributes;
  /// Told of classes in C whose values the program reads or makes: what their operations do may follow settings.
  std::function<void(const PyTypeObject*)> note_type;
  /// Asked before the program looks into an object from outside whose class is in C, or gives it to code in C
  /// (`is_given`): it may hold what no guard can tell. False with a Python exception set.
  std::function<bool(PyObject* object, bool is_given)> admit_look;
  /// Whether these are the globals of a module whose state programs do not change.
  std::function<bool(PyObject* globals)> is_library;
  /// The callable (borrowed) that is interpreted in the place of another one; null: none.
  std::function<PyObject*(PyObject*)> unwrap;
  /// Asked about each call of C code before its arguments are read and guarded; the convention of `intercept`.
  std::function<int(PyObject* callable, const NativeCall& call, PyObject** result)> convert;
  /// Gives an index of a trace tensor with tensors in the place of arrays that came from outside (new reference). Null
  /// without an exception: it has none.
  std::function<PyObject*(PyObject* tensor, PyObject* index)> convert_index;
  /// Asked about each call of C code, with its arguments told apart; the convention of `Observer::before_native_call`.
  std::function<int(PyObject* callable, const NativeCall& call, PyObject** result)> intercept;
  /// Code in C has raised the pending exception, and was given an object that stands for a number (see
  /// `Observer::stands_for_number`).
  std::function<void()> refuse_numbers;
  /// `Observer::notice_handler`.
  std::function<void(PyObject* exception)> notice_handler;
};

/// Lists and dicts that a function under functools.lru_cache gave, computed for this trace: in eager its cache has
/// them, and the next call would see what is written to them.
class MemoResults {
 public:
  explicit MemoResults(const TrackerOptions& options) : options_(options) {}
  void keep(py::Borrowed result);
  /// Whether the program may write to an object, or hand it on; if not, an exception is set, and the trace is made
  /// again with plain numbers.
  [[nodiscard]] bool may_write(py::Borrowed object) const;

 private:
  const TrackerOptions& options_;
  std::unordered_set<PyObject*> objects_;
  std::vector<py::Ref> owned_;
};

/// Data that the parts of a Tracker share.
struct TrackerState {
  TensorHooks& hooks;
  TrackerOptions options;
  Provenance provenance{};
  Journal journal{options.locate};
  MemoResults memos{options};
};

/// The node of the tensor behind a trace tensor; null when there is none.
[[nodiscard]] inline Node* node_behind(py::Borrowed traced, const TrackerState& state) {
  const py::Ref real = py::Ref::steal(state.hooks.original(traced));
  return real ? state.provenance.find(real.get()) : nullptr;
}

}  // namespace thunder::interpreter
