#pragma once

#include <functional>
#include <unordered_map>

#include "interpreter/journal.h"
#include "interpreter/observer.h"
#include "interpreter/provenance.h"
#include "interpreter/tensor_hooks.h"
#include "interpreter/tracker_native.h"

namespace thunder::interpreter {

/// What the owner of a Tracker knows and the tracker does not.
struct TrackerOptions {
  /// The user's line that runs now. Called once for each new read.
  std::function<ir::SourceLocation()> locate;
  /// How the functions of a code object are executed; asked once for each code object.
  std::function<Treatment(PyCodeObject*)> treatment;
  /// Replaces a call of the key, native or Python; the convention of `Observer::before_native_call`.
  using Substitute =
      std::function<int(PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result)>;
  std::unordered_map<const PyObject*, Substitute> substitutes;
  /// What a callable written in C stands for (borrowed), to be interpreted in its place; null: nothing.
  std::function<PyObject*(PyObject*)> unwrap;
};

/// The observer of a trace: builds the provenance of what the program reads from outside, lifts its tensors, and keeps
/// a journal of its writes. Objects that the program makes itself are unknown here and cost one failed look-up.
class Tracker final : public Observer {
 public:
  Tracker(TensorHooks& hooks, TrackerOptions options);

  /// The program's view of an argument of the traced call (new reference), or null with an exception set.
  PyObject* admit_argument(Py_ssize_t index, const std::string& name, py::Borrowed value);
  PyObject* admit_keyword(py::Borrowed name, py::Borrowed value);
  /// Enters an object that stays what it is as long as the compiled function lives, such as the traced callable.
  Node& admit_constant(py::Borrowed object, const std::string& name);

  [[nodiscard]] Provenance& provenance() { return provenance_; }
  [[nodiscard]] Journal& journal() { return journal_; }
  [[nodiscard]] TensorHooks& hooks() { return hooks_; }

  /// Guards the contents of a container as they were before the program wrote to it.
  bool read_original_contents(Node& container);
  /// The node of the `__dict__` of an external object, or null when it has none.
  Node* instance_dict_node(Node& owner);

  PyObject* read_attribute(PyObject* owner, PyObject* name, AttributeSource source, PyObject* value) override;
  bool read_missing_attribute(PyObject* owner, PyObject* name) override;
  PyObject* read_global(PyObject* globals, PyObject* name, bool from_builtins, PyObject* value) override;
  PyObject* read_cell(PyObject* cell, PyObject* value) override;
  PyObject* read_item(PyObject* owner, PyObject* key, PyObject* value) override;
  PyObject* receive(PyObject* value) override;
  bool examine(PyObject* owner, Aspect aspect) override;
  bool before_write(PyObject* owner, WriteKind kind, PyObject* key) override;
  int before_native_call(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                         PyObject** result) override;
  PyObject* after_native_call(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                              PyObject* value) override;
  int before_python_call(PyObject* function, PyObject* const* arguments, std::size_t count, PyObject* names,
                         PyObject** result) override;
  Treatment treatment(PyCodeObject* code) override;

 private:
  // --- tracker.cpp: reads
  /// Records that `owner` gave `value` (borrowed; null: nothing), unless that is known.
  void record(Node& owner, Accessor accessor, py::Borrowed key, Py_ssize_t index, py::Borrowed value);
  void record_fact(Node& owner, Accessor accessor, py::Ref value);
  [[nodiscard]] Read classify_read(Node& owner, Accessor accessor, py::Borrowed key, Py_ssize_t index,
                                   py::Borrowed value);
  void record_dict_item(Node& dict, py::Borrowed key, py::Borrowed value);
  void record_type_attribute(PyTypeObject* type, py::Borrowed name);
  void record_super_attribute(py::Borrowed super, py::Borrowed name);
  void record_absent_from_instance(py::Borrowed owner, py::Borrowed name);
  void record_descriptor(py::Borrowed owner, py::Borrowed name, py::Borrowed value);
  /// Enters the parts of a new node that the program can reach without a read that we see.
  void enter_hidden_parts(Node& node);
  void enter_function(py::Borrowed function);
  /// What the program sees for `value` (stolen): the stand-in of a real tensor, everything else itself.
  PyObject* present(PyObject* value);
  PyObject* lift(Node& node);
  [[nodiscard]] bool is_real_tensor(py::Borrowed value) const;

  // --- tracker_contents.cpp: what is inside of containers
  void read_contents(Node& container, py::Borrowed contents);
  /// Reads everything inside; true when real tensors are among it.
  bool read_deeply(py::Borrowed value, int depth);
  /// A copy of a container with stand-ins in place of real tensors.
  py::Ref substitute(py::Borrowed value, int depth);

  // --- tracker_calls.cpp
  int call_with_stand_ins(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                          PyObject** result);
  bool apply_effect(const NativeCall& call, NativeEffect effect);
  bool write_attribute(py::Borrowed owner, py::Borrowed name);

  TensorHooks& hooks_;
  TrackerOptions options_;
  Provenance provenance_;
  Journal journal_;
  std::unordered_map<const PyCodeObject*, Treatment> treatments_;
};

}  // namespace thunder::interpreter
