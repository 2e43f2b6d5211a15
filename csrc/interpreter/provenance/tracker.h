#pragma once

#include <functional>
#include <set>
#include <unordered_map>
#include <utility>

#include "interpreter/loop/observer.h"
#include "interpreter/provenance/journal.h"
#include "interpreter/provenance/opaque_state.h"
#include "interpreter/provenance/provenance.h"
#include "interpreter/provenance/tracker_native.h"
#include "interpreter/python/object_parts.h"
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
  /// Told of classes in C whose values the program reads or makes: what their operations do may follow settings.
  std::function<void(const PyTypeObject*)> note_type;
  /// Whether these are the globals of a module whose state programs do not change.
  std::function<bool(PyObject* globals)> is_library;
  /// The callable (borrowed) that is interpreted in the place of another one; null: none.
  std::function<PyObject*(PyObject*)> unwrap;
  /// Asked about each call of C code, with its arguments told apart; the convention of `Observer::before_native_call`.
  std::function<int(PyObject* callable, const NativeCall& call, PyObject** result)> intercept;
  /// `Observer::notice_handler`.
  std::function<void(PyObject* exception)> notice_handler;
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
  [[nodiscard]] const Provenance& provenance() const { return provenance_; }
  [[nodiscard]] Journal& journal() { return journal_; }
  [[nodiscard]] TensorHooks& hooks() { return hooks_; }
  /// The program has ended. The objects that it made and that live on stand for others, which each call makes: their
  /// `__del__` is not called.
  void leave_objects();
  /// The trace is dropped: what functions under functools.lru_cache computed, and wrote elsewhere, is forgotten.
  void forget_memoized();
  /// Whether a function under functools.lru_cache runs: eager code would not run it at each call.
  [[nodiscard]] bool in_memoized_call() const { return memoized_depth_ > 0; }

  /// Until `end_part`, notes the variables of functions around that the program reads: a backward runs it once more.
  void begin_part() { ++part_depth_; }
  void end_part();
  /// Whether these variables hold the objects that they held when the parts ended.
  [[nodiscard]] bool reads_same_variables() const;

  /// Until `end_trial`, notes what keeps the program that runs from being nothing but a computation.
  void begin_trial() {
    trial_ = Trial{true, false, journal_.write_count()};
    begin_part();
  }
  /// Whether it wrote nothing and read nothing from outside but functions, classes and modules: what it computes is the
  /// same whenever it runs.
  [[nodiscard]] bool end_trial() {
    end_part();
    const Trial done = std::exchange(trial_, Trial());
    return !done.has_read && journal_.write_count() == done.writes;
  }

  /// Guards `name` of the tensor behind a stand-in and tells the stand-in, once. False with an exception set.
  bool load_tensor_state(py::Borrowed traced, py::Borrowed name);
  /// Reads `name` of the tensor behind a stand-in, guarded (new reference); null with an exception, or without one when
  /// there is no such tensor.
  PyObject* read_behind(py::Borrowed traced, py::Borrowed name);
  /// Guards the contents of a container as they were before the program wrote to it.
  bool read_original_contents(Node& container);
  /// Guards that a function in C, called without arguments, gives `value`.
  void record_result(py::Borrowed function, const std::string& name, py::Borrowed value);
  /// Whether a code object that the trace ran holds this as a constant: it is the same object at each call.
  [[nodiscard]] bool is_code_constant(py::Borrowed value) const;
  /// Whether a tuple of constants, or a NaN, was read from outside, or is a constant of code: the program did not make
  /// it.
  [[nodiscard]] bool is_given(py::Borrowed value) const;
  /// The node of a number, string or tuple of constants that was read from outside, from which each call takes its own:
  /// another equal object is another one. Guards that what held one object goes on holding one. Null: it was not read,
  /// or all equal objects are one.
  Node* given_constant(py::Borrowed value);
  /// The node of the `__dict__` of an external object, or null when it has none.
  Node* instance_dict_node(Node& owner);

  PyObject* read_attribute(PyObject* owner, PyObject* name, AttributeSource source, PyObject* value) override;
  bool read_missing_attribute(PyObject* owner, PyObject* name) override;
  PyObject* read_global(PyObject* globals, PyObject* name, bool from_builtins, PyObject* value) override;
  bool read_missing_global(PyObject* globals, PyObject* name) override;
  PyObject* read_cell(PyObject* cell, PyObject* value) override;
  bool read_empty_cell(PyObject* cell) override;
  PyObject* read_import(PyObject* builtins, PyObject* name, PyObject* level, PyObject* module) override;
  PyObject* read_item(PyObject* owner, PyObject* key, PyObject* value) override;
  PyObject* receive(PyObject* value) override;
  bool examine_presence(PyObject* owner, PyObject* key) override;
  bool examine(PyObject* owner, Aspect aspect) override;
  bool examine_identity(PyObject* left, PyObject* right) override;
  int is_instance(PyObject* object, PyObject* kind) override { return hooks_.is_instance(object, kind); }
  PyObject* operand(PyObject* value, PyObject* other, bool is_key) override;
  PyObject* given(PyObject* value) override;
  bool before_write(PyObject* owner, WriteKind kind, PyObject* key) override;
  int before_native_call(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                         PyObject** result) override;
  PyObject* after_native_call(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                              PyObject* value) override;
  int before_python_call(PyObject* function, PyObject* const* arguments, std::size_t count, PyObject* names,
                         PyObject** result) override;
  void enter_method(PyCodeObject* code, PyObject* self) override;
  void look_up(PyObject* object, const char* names) override;
  void construct(PyTypeObject* type) override;
  void made(PyObject* object) override;
  Treatment treatment(PyCodeObject* code) override;
  void notice_handler(PyObject* exception) override { options_.notice_handler(exception); }

 private:
  // --- tracker.cpp: reads
  /// Records that `owner` gave `value` (borrowed; null: nothing), unless that is known.
  void record(Node& owner, Accessor accessor, py::Borrowed key, Py_ssize_t index, py::Borrowed value);
  void record_fact(Node& owner, Accessor accessor, py::Ref value);
  [[nodiscard]] Read classify_read(Node& owner, Accessor accessor, py::Borrowed key, Py_ssize_t index,
                                   py::Borrowed value);
  void record_dict_item(Node& dict, py::Borrowed key, py::Borrowed value);
  void record_type_attribute(PyTypeObject* type, py::Borrowed name);
  /// Guards the special methods of a type that this code is the body of.
  void record_special_methods(PyTypeObject* type, const PyCodeObject* code);
  [[nodiscard]] bool is_written_in_class(PyTypeObject* type, py::Borrowed name) const;
  void record_written_type_attribute(PyTypeObject* type, py::Borrowed name);
  /// The value that a class gave for `name` before the program wrote to the class or to its bases.
  [[nodiscard]] PyObject* original_type_attribute(PyTypeObject* type, py::Borrowed name) const;
  void record_cell(Node& cell, py::Borrowed value);
  void record_super_attribute(py::Borrowed super, py::Borrowed name);
  void record_absent_from_instance(py::Borrowed owner, py::Borrowed name);
  void record_descriptor(py::Borrowed owner, py::Borrowed name, py::Borrowed value);
  void read_places(Node& tuple, py::Borrowed value);
  /// Enters the parts of a new node that the program can reach without a read that we see.
  void enter_hidden_parts(Node& node);
  void enter_function(Node& function);
  void record_function_part(Node& function, FunctionPart part);
  /// The object that the program sees for `value` (stolen): the stand-in of a real tensor, everything else itself.
  PyObject* present(PyObject* value);
  PyObject* lift(Node& node);
  [[nodiscard]] bool is_real_tensor(py::Borrowed value) const;
  [[nodiscard]] bool is_frame_of_caller(py::Borrowed value) const;

  // --- tracker_state.cpp: what code in C sees
  void record_state_as(Node& node, StateKind kind);
  /// Guards everything that code in C can see in an object that is no container.
  void record_opaque(Node& node);
  /// A key that is looked up by its identity.
  void record_key(py::Borrowed key);
  PyObject* read_computed(PyObject* owner, PyObject* name, PyObject* value);
  /// A function in Python in place of a callable whose work in C would not be seen; null: none is needed.
  [[nodiscard]] py::Ref seen_from_c(PyObject* callable, bool is_called) const;
  [[nodiscard]] py::Ref called_by_c(PyObject* callable, PyObject* caller) const;
  /// Calls what reads attributes and items from C (`operator.attrgetter`), or is given such a callable, in Python.
  int call_getter(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                  PyObject** result);

  // --- tracker_contents.cpp: what is inside of containers
  void read_contents(Node& container, py::Borrowed contents);
  /// Reads everything inside; true when real tensors are among it. May set an exception.
  bool read_deeply(py::Borrowed value, int depth);
  bool refuse_depth(py::Borrowed value);
  /// Whether operators of `object` look into the other operand.
  [[nodiscard]] bool looks_into_operands(py::Borrowed object) const;
  /// A copy of a container with stand-ins in place of real tensors.
  py::Ref substitute(py::Borrowed value, int depth);

  void read_attribute_behind(py::Borrowed traced, py::Borrowed name, py::Borrowed value);
  bool read_all_attributes_behind(py::Borrowed traced);
  /// `value` (stolen) is what the stand-in says by itself.
  PyObject* read_tensor_attribute(py::Borrowed traced, py::Borrowed name, PyObject* value);

  // --- tracker_calls.cpp
  /// Reads what code in C may see in the arguments of a call; true when real tensors are among it.
  bool read_arguments(const NativeCall& call, PyObject* const* arguments, std::size_t count);
  bool tell_identity(py::Borrowed object, PyObject** result);
  int call_with_stand_ins(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                          PyObject** result);
  int call_watched(PyObject* callable, const NativeCall& call, PyObject* const* arguments, std::size_t count,
                   PyObject** result);
  [[nodiscard]] static NativeEffect effect_on_self(const NativeCall& call);
  int intercept(PyObject* callable, const NativeCall& call, PyObject** result);
  /// Calls what the callable stands for, if it does.
  int call_unwrapped(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                     PyObject** result);
  void record_methods(PyTypeObject* type);
  int call_partial(PyObject* partial, PyObject* const* arguments, std::size_t count, PyObject* names,
                   PyObject** result);
  int call_with_key(PyObject* callable, NativeCall call, PyObject* key, PyObject* const* arguments, std::size_t count,
                    PyObject** result);
  int call_memoized(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                    PyObject** result);
  [[nodiscard]] bool holds_traced(py::Borrowed value, int depth) const;
  void look_up_for(NativeEffect effect, PyObject* argument);
  bool read_names(py::Borrowed object);
  bool apply_effect(const NativeCall& call, NativeEffect effect);
  /// Calls code in C that must not write to memory from outside.
  PyObject* call_beside_memory(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names);
  /// Reads what is inside; an iterator from outside is refused.
  bool consume(py::Borrowed value);
  bool consume_all(const NativeCall& call);
  bool consume_pairs(const NativeCall& call);
  bool update_dict(Node& dict, const NativeCall& call);
  bool read_state(py::Borrowed owner);
  void record_loaded_module(py::Borrowed name);
  /// Guards the object that a weak reference or context variable from outside gives now.
  void read_referent(py::Borrowed reference);
  bool write_attribute(py::Borrowed owner, py::Borrowed name, bool removes);
  bool write_dict_item(Node& dict, py::Borrowed key, bool removes);
  bool write_item(Node& container, py::Borrowed key, bool removes);
  bool write_contents(py::Borrowed owner);

  /// Whether the class that gives `type` this attribute is one of a library.
  [[nodiscard]] bool is_of_library(PyTypeObject* type, py::Borrowed name) const;
  /// Notes a read that a trial makes.
  void note_read(Node& owner, py::Borrowed value);

  struct Trial {
    bool runs = false;
    bool has_read = false;
    std::uint64_t writes = 0;
  };
  Trial trial_;
  struct Variable {
    py::Ref cell;
    py::Ref value;  ///< when the part ended that read it
    bool is_known = false;
  };
  int part_depth_ = 0;
  std::vector<Variable> variables_;  ///< that were read in parts
  TensorHooks& hooks_;
  TrackerOptions options_;
  Provenance provenance_;
  Journal journal_;
  std::unordered_map<const PyCodeObject*, Treatment> treatments_;
  std::vector<py::Ref> codes_;  ///< those of `treatments_`, kept alive
  struct EqualRead {
    Node* owner;
    Read* read;
  };
  std::unordered_map<const PyObject*, std::vector<EqualRead>> equal_reads_;  ///< by the object that was read
  std::vector<py::Ref> given_;  ///< tuples of constants, defaults of functions, and NaNs, read from outside
  std::set<std::pair<const PyTypeObject*, const PyCodeObject*>> entered_;  ///< methods that ran
  std::set<std::pair<const PyTypeObject*, const char*>> looked_up_;        ///< names of special methods
  std::vector<std::pair<py::Ref, py::Ref>> memory_;  ///< memory that the next call in C must not write to, with copies
  int memoized_depth_ = 0;
  std::vector<py::Ref> writing_memoized_;  ///< functions under functools.lru_cache whose first call wrote something
  std::vector<py::Ref> made_;              ///< weak references to objects of the program that have a `__del__`
  py::Ref caller_;                         ///< the frame that the traced function is called from, or null
  std::vector<py::Ref> memoized_;          ///< values that functions under functools.lru_cache computed in this trace
};

}  // namespace thunder::interpreter
