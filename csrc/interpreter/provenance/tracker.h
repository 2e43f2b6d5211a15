#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "interpreter/loop/signal_handlers.h"
#include "interpreter/provenance/dropped_objects.h"
#include "interpreter/provenance/native_calls.h"

namespace thunder::interpreter {

/// The observer of a trace: builds the provenance of what the program reads from outside, lifts its tensors, and keeps
/// a journal of its writes. Objects that the program makes itself are unknown here and cost one failed look-up.
class Tracker final : public Observer {
 public:
  Tracker(TensorHooks& hooks, TrackerOptions options) : state_{hooks, std::move(options)} {}

  /// The program's view of an argument of the traced call (new reference), or null with an exception set.
  PyObject* admit_argument(Py_ssize_t index, const std::string& name, py::Borrowed value);
  PyObject* admit_keyword(py::Borrowed name, py::Borrowed value);
  Node& admit_constant(py::Borrowed object, const std::string& name) { return reads_.admit_constant(object, name); }

  [[nodiscard]] Provenance& provenance() { return state_.provenance; }
  [[nodiscard]] const Provenance& provenance() const { return state_.provenance; }
  [[nodiscard]] Journal& journal() { return state_.journal; }
  [[nodiscard]] TensorHooks& hooks() { return state_.hooks; }
  [[nodiscard]] const MemoResults& memos() const { return state_.memos; }
  [[nodiscard]] PartReads& parts() { return parts_; }
  [[nodiscard]] const PartReads& parts() const { return parts_; }
  [[nodiscard]] Reads& reads() { return reads_; }
  [[nodiscard]] TraceTensors& tensors() { return tensors_; }
  [[nodiscard]] NativeCalls& native_calls() { return calls_; }
  [[nodiscard]] const NativeCalls& native_calls() const { return calls_; }
  /// The program has ended. The objects that it made and that live on stand for others, which each call makes: their
  /// `__del__` is not called.
  void leave_objects();
  [[nodiscard]] Death find_seen_death() const { return interpreter::find_seen_death(state_); }
  /// Guards that a function in C, called without arguments, gives `value`.
  void record_result(py::Borrowed function, const std::string& name, py::Borrowed value);

  PyObject* read_attribute(PyObject* owner, PyObject* name, AttributeSource source, PyObject* value) override;
  bool read_missing_attribute(PyObject* owner, PyObject* name) override;
  PyObject* read_global(PyObject* globals, PyObject* name, bool from_builtins, PyObject* value) override;
  bool read_missing_global(PyObject* globals, PyObject* name) override;
  PyObject* read_cell(PyObject* cell, PyObject* value) override;
  bool read_empty_cell(PyObject* cell) override;
  PyObject* read_import(PyObject* builtins, PyObject* name, PyObject* level, PyObject* module) override;
  PyObject* read_item(PyObject* owner, PyObject* key, PyObject* value) override;
  PyObject* referent(PyObject* proxy) override;
  PyObject* length(PyObject* object) override { return state_.hooks.length(object); }
  PyObject* receive(PyObject* value) override { return tensors_.present(value); }
  bool examine_presence(PyObject* owner, PyObject* key) override { return reads_.examine_presence(owner, key); }
  bool examine(PyObject* owner, Aspect aspect) override { return reads_.examine(owner, aspect); }
  void translate_exception() override { state_.hooks.translate_exception(); }
  bool examine_identity(PyObject* left, PyObject* right) override { return reads_.examine_identity(left, right); }
  int is_same(PyObject* left, PyObject* right) override { return reads_.is_same(left, right); }
  void examine_key(PyObject* key) override { reads_.record_key(key); }
  void examine_shared(PyObject* left, PyObject* right) override { reads_.record_shared(left, right); }
  int is_instance(PyObject* object, PyObject* kind) override { return state_.hooks.is_instance(object, kind); }
  PyObject* get_item(PyObject* owner, PyObject* key) override { return state_.hooks.get_item(owner, key); }
  int set_item(PyObject* owner, PyObject* key, PyObject* value) override {
    return state_.hooks.set_item(owner, key, value);
  }
  PyObject* spread(PyObject* container) override;
  [[nodiscard]] bool is_number(PyObject* object) const override { return state_.hooks.is_number(object); }
  PyObject* operand(PyObject* value, PyObject* other, bool is_key) override {
    return tensors_.operand(value, other, is_key);
  }
  [[nodiscard]] bool stands_for_number(PyObject* object) const override {
    return state_.hooks.stands_for_number(object);
  }
  PyObject* plain_number(PyObject* object) override { return state_.hooks.plain_number(object); }
  PyObject* return_to_c(PyObject* function, PyObject* self, PyObject* value) override;
  void notice_failure() override;
  PyObject* given(PyObject* value) override { return tensors_.given(value); }
  bool before_write(PyObject* owner, WriteKind kind, PyObject* key) override;
  void after_write() override { state_.journal.after_write(); }
  int before_native_call(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                         PyObject** result) override {
    const std::uint64_t writes = state_.journal.write_count();
    state_.journal.begin_write();
    const VectorCall call{callable, arguments, count, names};
    const int status = calls_.before(call, result);
    if (status == 0) note_numbers(call);
    return status == 0 && !may_have_written(writes) ? -1 : status;
  }
  PyObject* after_native_call(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                              PyObject* value) override;
  int before_python_call(PyObject* function, PyObject* const* arguments, std::size_t count, PyObject* names,
                         PyObject** result) override {
    return calls_.before_python({function, arguments, count, names}, result);
  }
  void enter_method(PyCodeObject* code, PyObject* const* arguments, std::size_t count) override {
    reads_.enter_method(code, arguments, count);
  }
  bool look_up(PyObject* object, const char* names) override { return reads_.look_up(object, names); }
  void admit(PyObject* object) override { reads_.admit_unread(object); }
  void construct(PyTypeObject* type) override { reads_.construct(type); }
  void made(PyObject* object) override;
  Treatment treatment(PyCodeObject* code) override;
  void notice_handler(PyObject* exception) override { state_.options.notice_handler(exception); }
  void interrupted() override;
  /// Whether a handler of a signal has raised an exception, or another thread has sent one, wherever it went.
  [[nodiscard]] bool is_interrupted() const {
    return interruption_ || handler_exception_count() != handler_exceptions_;
  }
  /// Raises an exception that came from outside, in the place of the pending one.
  void raise_interruption() const;

 private:
  /// After a write, if there were more than `writes` of them by then: refuses those of methods that guards call, too.
  [[nodiscard]] bool may_have_written(std::uint64_t writes) const;
  /// A call of code in C goes on as it stands.
  void note_numbers(const VectorCall& call);

  TrackerState state_;
  PartReads parts_{state_};
  Reads reads_{state_, parts_};
  TraceTensors tensors_{state_, reads_};
  Writes writes_{state_, reads_, tensors_};
  NativeCalls calls_{state_, reads_, tensors_, writes_};
  std::unordered_map<const PyCodeObject*, Treatment> treatments_;
  std::unordered_set<const void*> number_takers_;  ///< instructions whose code in C got what stands for a number
  py::Ref interruption_;
  std::uint64_t handler_exceptions_ = handler_exception_count();  ///< those before the trace
  std::vector<py::Ref> made_;  ///< weak references to objects of the program that have a `__del__`
};

}  // namespace thunder::interpreter
