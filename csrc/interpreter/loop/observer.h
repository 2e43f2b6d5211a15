#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "interpreter/python/object_parts.h"

namespace thunder::interpreter {

/// Where CPython's lookup of `owner.name` found the value.
enum class AttributeSource : std::uint8_t {
  kInstance,    ///< the instance `__dict__`
  kType,        ///< the type's MRO: a plain value, a function (bound or not), a class or static method
  kDescriptor,  ///< a C data descriptor of the type (slot, member, getset): storage outside any dict
  kModule,      ///< a module's `__dict__`
  kTypeObject,  ///< `owner` is itself a type, found in its own MRO
  kComputed,    ///< Python code or an unknown `tp_getattro` computed it; its own reads were observed, if interpreted
};

/// The aspect of an object that a read looked at, other than one attribute or item.
enum class Aspect : std::uint8_t {
  kType,      ///< `type(x)`, `isinstance`
  kLength,    ///< `len(x)`
  kTruth,     ///< `bool(x)`, a branch
  kKeys,      ///< ordered keys of a dict, members of a set; `key in x`
  kContents,  ///< items, one level deep: iteration; see also `Observer::given`
};

enum class WriteKind : std::uint8_t {
  kAttribute,        ///< `owner.key = …`
  kDeleteAttribute,  ///< `del owner.key`
  kItem,             ///< `owner[key] = …`
  kDeleteItem,       ///< `del owner[key]`
  kGlobal,           ///< `owner` is a frame's globals dict
  kDeleteGlobal,
  kCell,      ///< `owner` is a cell, which is set or emptied
  kContents,  ///< anything inside `owner` may change (an opaque C method such as `list.append`)
};

/// How a Python function is to be executed.
enum class Treatment : std::uint8_t {
  kInterpret,
  kLibrary,  ///< as kInterpret, but as kNative where a function of kNative calls it
  kNative,   ///< CPython executes it, and functions of the library that it calls; those of the program are interpreted
  kUnobserved,  ///< CPython executes it, and everything that it calls
};

/// Whether CPython executes a function that the program calls.
[[nodiscard]] constexpr bool is_native(Treatment treatment) {
  return treatment == Treatment::kNative || treatment == Treatment::kUnobserved;
}

/// Sees what an interpreted program reads, writes and calls. Nothing here knows torch. One observer belongs to one
/// interpretation, on one thread, under the GIL. Without an observer the interpreter makes none of these calls.
///
/// Convention of the `PyObject*` functions that take `value`: they steal `value` and return a new reference to what the
/// program shall see instead (usually the same object), or null with a Python exception set. Functions that return
/// `bool` return false with a Python exception set on failure. Everything else is borrowed.
class Observer {
 public:
  virtual ~Observer() = default;

  // --- reads: called after the value was found, before the program sees it
  virtual PyObject* read_attribute(PyObject* owner, PyObject* name, AttributeSource source, PyObject* value) = 0;
  /// `owner.name` was looked up and is absent (AttributeError follows, or a default is used).
  virtual bool read_missing_attribute(PyObject* owner, PyObject* name) = 0;
  virtual PyObject* read_global(PyObject* globals, PyObject* name, bool from_builtins, PyObject* value) = 0;
  /// Neither `globals` nor the builtins have `name`: NameError follows.
  virtual bool read_missing_global(PyObject* /*globals*/, PyObject* /*name*/) { return true; }
  /// `cell` is the closure cell object; `function` may be null when not known.
  virtual PyObject* read_cell(PyObject* cell, PyObject* value) = 0;
  /// The closure variable is not bound: NameError follows.
  virtual bool read_empty_cell(PyObject* /*cell*/) { return true; }
  /// An import statement of `name` gave `module`; null with an exception: it failed.
  virtual PyObject* read_import(PyObject* /*builtins*/, PyObject* /*name*/, PyObject* /*level*/, PyObject* module) {
    return module == nullptr ? nullptr : receive(module);
  }
  /// `owner[key]` on any object whose `__getitem__` is C code (list, tuple, dict, …).
  virtual PyObject* read_item(PyObject* owner, PyObject* key, PyObject* value) = 0;
  /// A value that an iterator made in C gave (`next`, FOR_ITER, unpacking, a C function's result).
  virtual PyObject* receive(PyObject* value) = 0;
  /// `key in owner` of a dict or set is about to be decided.
  virtual bool examine_presence(PyObject* owner, PyObject* key) = 0;
  /// The program depends on an aspect of `owner`.
  virtual bool examine(PyObject* owner, Aspect aspect) = 0;
  /// The program takes everything out of an exact list, tuple or dict: a new reference to one with what it gets.
  virtual PyObject* spread(PyObject* container) {
    return examine(container, Aspect::kContents) ? Py_NewRef(container) : nullptr;
  }
  /// Makes the exception of C++ that is being handled the pending one of Python.
  virtual void translate_exception() {
    PyErr_SetString(PyExc_SystemError, "thunder.interpreter: an exception of C++ in what observes the program");
  }
  /// The program depends on these two being different objects, or not.
  virtual bool examine_identity(PyObject* /*left*/, PyObject* /*right*/) { return true; }
  /// `left is right`, on which the program depends; -1 with an exception set.
  virtual int is_same(PyObject* left, PyObject* right) {
    return examine_identity(left, right) ? static_cast<int>(left == right) : -1;
  }
  /// The program depends on which object this is, or which ones are in this container: it is hashed or compared.
  virtual void examine_key(PyObject* /*key*/) {}
  /// C code compares these, or a key with those of a container, and takes each object to be equal to itself.
  virtual void examine_shared(PyObject* /*left*/, PyObject* /*right*/) {}
  /// The object that a `weakref.proxy` stands for (new reference); null without an exception: it is gone.
  virtual PyObject* referent(PyObject* proxy) { return referent_of(proxy).release(); }
  /// `len(object)`.
  virtual PyObject* length(PyObject* object) {
    const Py_ssize_t length = PyObject_Size(object);
    return length < 0 ? nullptr : PyLong_FromSsize_t(length);
  }
  /// `isinstance(object, kind)`; -1 with an exception set.
  virtual int is_instance(PyObject* object, PyObject* kind) { return PyObject_IsInstance(object, kind); }

  /// The operand that an operator in C gets for `value` beside `other` (`is_key`: as an index of it). Steals nothing;
  /// returns a new reference or null with an exception set.
  virtual PyObject* operand(PyObject* value, PyObject* /*other*/, bool /*is_key*/) { return Py_NewRef(value); }
  /// Whether it is a number in the place of which `operand` may give another object.
  [[nodiscard]] virtual bool is_number(PyObject* /*object*/) const { return false; }
  /// Whether this stands for a number that is another one in other calls. Code in C may not take it for one.
  [[nodiscard]] virtual bool stands_for_number(PyObject* /*object*/) const { return false; }
  /// The number itself for an object that stands for one, else the object (new reference).
  virtual PyObject* plain_number(PyObject* object) { return Py_NewRef(object); }
  /// Returns what code in C gets for `value` (stolen), which a function in Python that it has called returned or
  /// yielded. `self` is the function's first argument; both may be null.
  virtual PyObject* return_to_c(PyObject* /*function*/, PyObject* /*self*/, PyObject* value) { return value; }
  /// An instruction whose work is done in C failed, with the pending exception.
  virtual void notice_failure() {}
  /// The object that code in C gets for `value`, when it may look into it as deep as it likes. References as for
  /// `operand`.
  virtual PyObject* given(PyObject* value) { return Py_NewRef(value); }

  /// `owner[key]` and `owner[key] = value`, as the program sees these.
  virtual PyObject* get_item(PyObject* owner, PyObject* key) { return PyObject_GetItem(owner, key); }
  virtual int set_item(PyObject* owner, PyObject* key, PyObject* value) { return PyObject_SetItem(owner, key, value); }

  // --- writes: called before they happen
  virtual bool before_write(PyObject* owner, WriteKind kind, PyObject* key) = 0;
  /// The write that was announced last is done, or has failed: no other code ran since it began. Those of calls are
  /// done by `after_native_call`.
  virtual void after_write() {}

  // --- calls
  /// Before a call of anything that is not a Python function or class implemented in Python. Returns 0 to go on with
  /// the call as it stands; 1 with `*result` set to a new reference in place of the call; -1 with an exception set.
  /// `arguments` follow the vectorcall convention: `count` positional ones, then one for each name in `names`
  /// (a tuple or null). For bound C methods `callable` is the method or builtin object with its `__self__`.
  virtual int before_native_call(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                                 PyObject** result) = 0;
  /// After it succeeded.
  virtual PyObject* after_native_call(PyObject* callable, PyObject* const* arguments, std::size_t count,
                                      PyObject* names, PyObject* value) = 0;
  /// Before an interpreted call of a Python function object: the observer may supply the result instead (as above).
  /// Called also for functions reached from C callbacks; then `function` may be null and nothing can be replaced.
  virtual int before_python_call(PyObject* function, PyObject* const* arguments, std::size_t count, PyObject* names,
                                 PyObject** result) = 0;
  /// A function in Python is about to run with these arguments, at least one, whoever found it: C code finds special
  /// methods in the type of an operand without a read that the interpreter sees.
  virtual void enter_method(PyCodeObject* /*code*/, PyObject* const* /*arguments*/, std::size_t /*count*/) {}
  /// The type of `object`, a class in Python, is about to be asked for these special methods (`names`: a literal,
  /// separated by spaces), of which it may have none. False with an exception set where it has one from C by another
  /// name (`__lshift__ = list.append`), whose work nobody would see.
  virtual bool look_up(PyObject* /*object*/, const char* /*names*/) { return true; }
  /// Code in C calls this object, which is from outside where no read has shown it.
  virtual void admit(PyObject* /*object*/) {}
  /// A class is about to be called.
  virtual void construct(PyTypeObject* /*type*/) {}
  /// A call of a class, or a `def`, made `object`.
  virtual void made(PyObject* /*object*/) {}
  virtual Treatment treatment(PyCodeObject* code) = 0;
  /// A handler of the program, or a cleanup that raises again, gets `exception`.
  virtual void notice_handler(PyObject* /*exception*/) {}
  /// Something from outside (the handler of a signal, another thread) raises the pending exception in the program.
  virtual void interrupted() {}
};

}  // namespace thunder::interpreter
