#pragma once

#include <Python.h>

#include <string>

namespace thunder::interpreter {

/// How a constant that the program read is guarded.
enum class ConstantKind {
  kUnknown,   ///< not a constant: an object with an identity and parts
  kIdentity,  ///< `is`
  kEquality,  ///< same type and `==`
};

/// The only extension point through which torch enters the interpreter layer. Functions that return `PyObject*` return
/// a new reference, or null with an exception set; arguments are borrowed.
class TensorHooks {
 public:
  virtual ~TensorHooks() = default;
  /// Makes the exception of C++ that is being handled the pending one of Python.
  virtual void translate_exception() { PyErr_SetString(PyExc_SystemError, "thunder: an exception of C++"); }
  /// A tensor that lives outside of the trace.
  [[nodiscard]] virtual bool is_real_tensor(PyObject* object) const = 0;
  /// A tensor of the trace.
  [[nodiscard]] virtual bool is_traced(PyObject* object) const = 0;
  /// Whether a class of tensors is one of PyTorch's own that programs do not change.
  [[nodiscard]] virtual bool is_plain_class(PyTypeObject* /*type*/) const { return true; }
  /// The traced trace tensor for a real tensor, seen first at `path` (an expression a person would write); becomes an
  /// input of the computation. Calls with one tensor give one trace tensor.
  virtual PyObject* lift(PyObject* real_tensor, const std::string& path) = 0;
  /// The tensor of the trace for one that code in C just made and that nobody else holds, where each run of the trace
  /// can make its own; null, with or without an exception.
  virtual PyObject* make_anew(PyObject* /*real_tensor*/) { return nullptr; }
  /// The real tensor behind a trace tensor that is an input, or null without an exception when `traced` was computed.
  virtual PyObject* original(PyObject* traced) const = 0;
  /// Position of a lifted tensor among the computation's inputs.
  [[nodiscard]] virtual std::size_t input_index(PyObject* real_tensor) const = 0;
  /// Whether anybody can say what `traced.name`, of a data descriptor in C, is in eager. False with an exception set.
  virtual bool require_known_state(PyObject* /*traced*/, PyObject* /*name*/) { return true; }
  /// Whether the trace tensor tells what the program sets as `traced.name`. False with an exception set.
  virtual bool may_set_state(PyObject* /*traced*/, PyObject* /*name*/) { return true; }
  /// Whether `traced.name` shows something of the tensor behind an input that the trace tensor has not been told yet.
  [[nodiscard]] virtual bool is_unknown_state(PyObject* /*traced*/, PyObject* /*name*/) const { return false; }
  /// Tells the trace tensor what the tensor behind it has as `name`, as the program sees it.
  virtual bool learn_state(PyObject* /*traced*/, PyObject* /*name*/, PyObject* /*value*/) { return true; }
  /// `isinstance(object, kind)`, also for classes that look at more of a tensor than its type; -1 with an exception
  /// set.
  virtual int is_instance(PyObject* object, PyObject* kind) { return PyObject_IsInstance(object, kind); }
  /// `object.__getattribute__(owner, name)`, where code that the program has watch its use of tensors is not called
  /// (new reference).
  [[nodiscard]] virtual PyObject* attribute(PyObject* owner, PyObject* name) const {
    return PyObject_GenericGetAttr(owner, name);
  }
  /// Grows with each operation that is recorded.
  [[nodiscard]] virtual std::size_t recorded() const { return 0; }
  /// Metadata of a tensor as text: shape, dtype and what else is not the common case.
  [[nodiscard]] virtual std::string describe(PyObject* tensor) const = 0;
  /// A number that the program took from a tensor: the trace goes on for others too, as long as only tensors get it.
  [[nodiscard]] virtual bool is_number(PyObject* /*object*/) const { return false; }
  /// The operand that an operator in C gets for a number whose other operand is `other`. `is_key`: `number` is an index
  /// into `other`, and may be a container of numbers.
  virtual PyObject* operand(PyObject* number, PyObject* /*other*/, bool /*is_key*/) { return Py_NewRef(number); }
  /// The number itself for an object that stands for one (`stands_for_number`), else the object; numbers that stand
  /// in a tuple are replaced there.
  virtual PyObject* plain_number(PyObject* object) { return Py_NewRef(object); }
  /// The number that an object which stands for one (`stands_for_number`) is in this call; nothing is tied to it.
  virtual PyObject* number_now(PyObject* object) { return Py_NewRef(object); }
  /// Returns what the program sees for a value that code in C gave (stolen), which may tell sizes of tensors of the
  /// trace.
  virtual PyObject* present_sizes(PyObject* value) { return value; }
  /// A size that stands for several: each call computes its own.
  [[nodiscard]] virtual bool is_size(PyObject* /*object*/) const { return false; }
  [[nodiscard]] bool stands_for_number(PyObject* object) const { return is_number(object) || is_size(object); }
  /// The object that the program sees in the place of a number that comes from outside, where other calls have another
  /// one (new reference): `input` is the position of what stands for it among the computation's inputs. Null, with or
  /// without an exception: the number is a constant. `path` is an expression that a person would write.
  virtual PyObject* lift_number(PyObject* /*number*/, const std::string& /*path*/, std::size_t* /*input*/) {
    return nullptr;
  }
  /// Whether ints in a tuple or list that was found at `path` are other ones in other calls: they are read one by one.
  virtual bool numbers_change(PyObject* /*sequence*/, const std::string& /*path*/) { return false; }
  /// Whether a function that was found at `path` is another one in other calls, made by the same code: its parts are
  /// read one by one.
  virtual bool function_changes(PyObject* /*function*/, const std::string& /*path*/) { return false; }
  /// Whether a function in C only reads lists that it is given, and takes sizes in them.
  [[nodiscard]] virtual bool takes_sizes(PyObject* /*function*/) const { return false; }
  /// Code in C looks at the number that `lifted` stands for: the trace is tied to it.
  virtual void need_number(PyObject* /*lifted*/) {}
  /// `owner[key]` and `owner[key] = value`.
  virtual PyObject* get_item(PyObject* owner, PyObject* key) { return PyObject_GetItem(owner, key); }
  virtual int set_item(PyObject* owner, PyObject* key, PyObject* value) { return PyObject_SetItem(owner, key, value); }
  /// `len(object)`: an int, or what stands for one.
  virtual PyObject* length(PyObject* object) {
    const Py_ssize_t length = PyObject_Size(object);
    return length < 0 ? nullptr : PyLong_FromSsize_t(length);
  }
  /// Code looks at what is in `object`. An array whose contents nobody has asked for until now gets them, and ties the
  /// trace to them. False with an exception set.
  virtual bool look_into(PyObject* /*object*/) { return true; }
  /// The trace tensor whose memory such an array shows, of which nobody has seen the contents (new reference); null
  /// without an exception for all else.
  virtual PyObject* tensor_shown_by(PyObject* /*array*/) { return nullptr; }
  /// Constants that torch brings: dtypes, devices, sizes, generators, …
  [[nodiscard]] virtual ConstantKind classify(PyObject* object) const = 0;
};

}  // namespace thunder::interpreter
