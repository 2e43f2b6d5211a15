// The slots of a traced number's type, which Python's operators and builtins call.
#include <string_view>

#include "dispatch/numbers/number_object.h"
#include "dispatch/numbers/size_number.h"
#include "dispatch/numbers/size_object.h"
#include "dispatch/numbers/size_origin.h"
#include "dispatch/numbers/traced_number.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/python_tensor.h"
#include "tracer/followed_data.h"

namespace thunder::dispatch {
namespace {

void destroy_number(PyObject* self) {
  TracedNumber& traced = as_traced(self);
  Py_CLEAR(traced.real);
  Py_CLEAR(traced.size);
  delete traced.origin;
  delete traced.expression;
  delete traced.trace;
  traced.number.~Number();
  Py_TYPE(self)->tp_free(self);
}

py::Borrowed real_of(PyObject* object) { return is_traced_number(object) ? as_traced(object).real : object; }

py::Ref looked_at(PyObject* object) {
  return py::Ref::steal(is_traced_number(object) ? look_at(object) : Py_NewRef(object));
}

bool look_at_both(PyObject* left, PyObject* right) { return looked_at(left) && looked_at(right); }

PyObject* with_tensors(PyObject* left, PyObject* right, binaryfunc operation) {
  const auto as_tensor = [](PyObject* object) {
    return py::Ref::steal(is_traced_number(object) ? tensor_of_number(object) : Py_NewRef(object));
  };
  const py::Ref first = as_tensor(left);
  const py::Ref second = as_tensor(right);
  return first && second ? operation(first.get(), second.get()) : nullptr;
}

bool is_from_data(PyObject* object) { return is_traced_number(object) && as_traced(object).origin == nullptr; }

/// A number beside one of data, where it is a size.
py::Ref beside_data(PyObject* object) {
  if (!is_size_number(object)) return py::Ref::share(object);
  if (type_of_size(object) != nullptr) return py::Ref::steal(look_at_size(object));
  py::Ref traced = py::Ref::steal(traced_number_of_size(object));
  return traced || PyErr_Occurred() != nullptr ? std::move(traced) : py::Ref::steal(look_at_size(object));
}

PyObject* calculate(PyObject* left, PyObject* right, const char* symbol, binaryfunc operation) {
  if (is_tensor(left) || is_tensor(right)) return with_tensors(left, right, operation);
  const auto is_level = [](PyObject* object) { return is_level_of_sizes(object); };
  if ((is_level(left) && is_size_number(right)) || (is_size_number(left) && is_level(right))) {
    // The size of what is padded to a power of two follows from both.
    const py::Ref first = looked_at(left), second = looked_at(right);
    return first && second ? operation(first.get(), second.get()) : nullptr;
  }
  if (is_from_sizes(left) || is_from_sizes(right)) {
    PyObject* combined = symbol == nullptr ? nullptr : combine_sizes(symbol, left, right);
    if (combined != nullptr || PyErr_Occurred() != nullptr) return combined;
  }
  if (is_size_number(left) || is_size_number(right)) {
    const py::Ref first = beside_data(left), second = beside_data(right);
    return first && second ? calculate(first.get(), second.get(), symbol, operation) : nullptr;
  }
  if (!operand_of(left) || !operand_of(right)) {
    const py::Ref first = looked_at(left);
    const py::Ref second = looked_at(right);
    return first && second ? operation(first.get(), second.get()) : nullptr;
  }
  const py::Ref real = py::Ref::steal(operation(real_of(left), real_of(right)));
  if (!real) {
    // Whether this raises depends on the numbers: the trace is tied to them.
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (look_at_both(left, right)) PyErr_Restore(type, value, traceback);
    return nullptr;
  }
  PyObject* recorded = record_number(symbol, left, right, real.get());
  if (recorded != nullptr || PyErr_Occurred() != nullptr) return recorded;
  return look_at_both(left, right) ? Py_NewRef(real.get()) : nullptr;
}

struct Spelling {
  char text[3];
};
template <Spelling symbol, binaryfunc operation>
PyObject* binary(PyObject* left, PyObject* right) {
  return calculate(left, right, symbol.text[0] == '\0' ? nullptr : symbol.text, operation);
}

PyObject* power(PyObject* left, PyObject* right, PyObject* modulus) {
  if (modulus == Py_None) {
    return calculate(left, right, "**", [](PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); });
  }
  const py::Ref a = looked_at(left);
  const py::Ref b = looked_at(right);
  const py::Ref c = looked_at(modulus);
  return a && b && c ? PyNumber_Power(a.get(), b.get(), c.get()) : nullptr;
}

template <unaryfunc operation>
PyObject* unary(PyObject* self) {
  const py::Ref real = py::Ref::steal(look_at(self));
  return real ? operation(real.get()) : nullptr;
}

PyObject* negative(PyObject* self) {
  PyObject* of_sizes = is_from_sizes(self) ? combine_sizes("neg", self, self) : nullptr;
  if (of_sizes != nullptr || PyErr_Occurred() != nullptr) return of_sizes;
  const py::Ref real = py::Ref::steal(PyNumber_Negative(as_traced(self).real));
  PyObject* recorded = real ? record_number("neg", self, self, real.get()) : nullptr;
  return recorded != nullptr || PyErr_Occurred() != nullptr ? recorded : unary<PyNumber_Negative>(self);
}

PyObject* absolute(PyObject* self) {
  const py::Ref real = py::Ref::steal(PyNumber_Absolute(as_traced(self).real));
  PyObject* recorded = real ? record_number("abs", self, self, real.get()) : nullptr;
  return recorded != nullptr || PyErr_Occurred() != nullptr ? recorded : unary<PyNumber_Absolute>(self);
}

PyObject* same(PyObject* self) { return Py_NewRef(self); }

/// Whether `left operation right` is true, -1 with an exception. `PyObject_RichCompareBool` would take an object to be
/// equal to itself, which NaN is not.
int outcome_of(PyObject* left, PyObject* right, int operation) {
  const py::Ref outcome = py::Ref::steal(PyObject_RichCompare(left, right, operation));
  return outcome ? PyObject_IsTrue(outcome.get()) : -1;
}

/// An int that the trace has found to be equal to another one is known from then on.
void note_equal_ints(PyObject* left, PyObject* right, std::string_view symbol, int outcome) {
  PyObject* traced = is_traced_number(left) ? left : right;
  PyObject* other = is_traced_number(left) ? right : left;
  const bool is_equal = (symbol == "==" && outcome == 1) || (symbol == "!=" && outcome == 0);
  if (is_equal && Py_TYPE(traced) == &traced_int_type && PyLong_CheckExact(other)) as_traced(traced).looked_at = true;
}

/// Ties the trace to the outcome of a comparison; -1 with an exception.
int compare(PyObject* left, PyObject* right, const char* symbol, int operation) {
  if (const auto decided = compare_fractions(left, right, operation)) return *decided;
  const int outcome = outcome_of(real_of(left), real_of(right), operation);
  const bool has_sizes = is_from_sizes(left) || is_from_sizes(right);
  if (outcome >= 0 && has_sizes && !is_from_data(left) && !is_from_data(right)) {
    return look_at_both(left, right) ? outcome : -1;
  }
  const TracedNumber& traced = untied_of(left, right);
  if (outcome < 0 || traced.looked_at) return outcome;
  bool is_recorded = false;
  const bool succeeded = with_recorder(traced, [&](tracer::Recorder& recorder) {
    const auto number = tracer::FollowedData(recorder).compute(symbol, *operand_of(left), *operand_of(right));
    is_recorded = number && number->value.toBool() == (outcome == 1);
    if (is_recorded) tracer::FollowedData(recorder).observe(*number);
  });
  if (succeeded && is_recorded) note_equal_ints(left, right, symbol, outcome);
  return succeeded && (is_recorded || look_at_both(left, right)) ? outcome : -1;
}

PyObject* rich_compare(PyObject* left, PyObject* right, int operation) {
  static constexpr const char* kSymbols[] = {"<", "<=", "==", "!=", ">", ">="};
  if (is_tensor(right)) {
    const py::Ref first = py::Ref::steal(tensor_of_number(left));
    return first ? PyObject_RichCompare(first.get(), right, operation) : nullptr;
  }
  if (right == Py_None)
    return Py_NewRef(operation == Py_NE ? Py_True : operation == Py_EQ ? Py_False : Py_NotImplemented);
  if (is_size_number(right)) {
    if (const auto decided = compare_fractions(left, right, operation)) {
      return *decided < 0 ? nullptr : PyBool_FromLong(*decided);
    }
    const py::Ref second = beside_data(right);
    return second ? rich_compare(left, second.get(), operation) : nullptr;
  }
  if (!operand_of(right)) {
    const py::Ref first = looked_at(left);
    const py::Ref second = looked_at(right);
    return first && second ? PyObject_RichCompare(first.get(), second.get(), operation) : nullptr;
  }
  const int outcome = compare(left, right, kSymbols[operation], operation);
  return outcome < 0 ? nullptr : PyBool_FromLong(outcome);
}

int truth(PyObject* self) {
  const py::Ref zero = py::Ref::steal(PyLong_FromLong(0));
  return zero ? compare(self, zero.get(), "!=", Py_NE) : -1;
}

Py_hash_t hash(PyObject* self) {
  const py::Ref real = py::Ref::steal(look_at(self));
  return real ? PyObject_Hash(real.get()) : -1;
}

PyObject* get_attribute(PyObject* self, PyObject* name) {
  if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0) {
    return Py_NewRef(reinterpret_cast<PyObject*>(python_type_of(self)));
  }
  const py::Ref real = py::Ref::steal(look_at(self));
  return real ? PyObject_GetAttr(real.get(), name) : nullptr;
}

struct MethodName {
  char text[16];
};
/// A special method that C code looks up in the type.
template <MethodName name>
PyObject* delegate(PyObject* self, PyObject* arguments) {
  const py::Ref real = py::Ref::steal(look_at(self));
  const py::Ref method = py::Ref::steal(real ? PyObject_GetAttrString(real.get(), name.text) : nullptr);
  return method ? PyObject_CallObject(method.get(), arguments) : nullptr;
}

/// `round(number)` is an int, `round(number, digits)` a float.
PyObject* rounded(PyObject* self, PyObject* arguments) {
  PyObject* digits = PyTuple_GET_SIZE(arguments) == 1 ? PyTuple_GET_ITEM(arguments, 0) : nullptr;
  PyObject* size = PyTuple_GET_SIZE(arguments) == 0 ? round_to_size("round", self) : nullptr;
  if (size != nullptr || PyErr_Occurred() != nullptr) return size;
  const bool is_known = PyTuple_GET_SIZE(arguments) == 0 || (digits != nullptr && PyLong_CheckExact(digits));
  const py::Ref method = py::Ref::steal(PyObject_GetAttrString(as_traced(self).real, "__round__"));
  const py::Ref real = py::Ref::steal(is_known && method ? PyObject_CallObject(method.get(), arguments) : nullptr);
  PyErr_Clear();  // it is raised again below, once the trace is tied to the number
  PyObject* recorded = !real               ? nullptr
                       : digits != nullptr ? record_number("round_to", self, digits, real.get())
                                           : record_number("round", self, self, real.get());
  if (recorded != nullptr || PyErr_Occurred() != nullptr) return recorded;
  return delegate<MethodName{"__round__"}>(self, arguments);
}

/// `ufunc.method(*inputs, **keywords)` of NumPy, which would otherwise take the number for an object of any kind.
PyObject* apply_ufunc(PyObject*, PyObject* arguments, PyObject* keywords) {
  constexpr Py_ssize_t kFirstInput = 2;
  const Py_ssize_t count = PyTuple_GET_SIZE(arguments);
  if (count < kFirstInput) return PyErr_Format(PyExc_TypeError, "__array_ufunc__: expected a ufunc and its method");
  const py::Ref method =
      py::Ref::steal(PyObject_GetAttr(PyTuple_GET_ITEM(arguments, 0), PyTuple_GET_ITEM(arguments, 1)));
  const py::Ref inputs = py::Ref::steal(PyTuple_New(count - kFirstInput));
  for (Py_ssize_t i = kFirstInput; method && inputs && i < count; ++i) {
    py::Ref input = looked_at(PyTuple_GET_ITEM(arguments, i));
    if (!input) return nullptr;
    PyTuple_SET_ITEM(inputs.get(), i - kFirstInput, input.release());
  }
  return method && inputs ? PyObject_Call(method.get(), inputs.get(), keywords) : nullptr;
}

PyMethodDef special_methods[] = {
    {"__format__", delegate<MethodName{"__format__"}>, METH_VARARGS, nullptr},
    {"__round__", rounded, METH_VARARGS, nullptr},
    {"__trunc__", delegate<MethodName{"__trunc__"}>, METH_VARARGS, nullptr},
    {"__floor__", delegate<MethodName{"__floor__"}>, METH_VARARGS, nullptr},
    {"__ceil__", delegate<MethodName{"__ceil__"}>, METH_VARARGS, nullptr},
    {"__reduce_ex__", delegate<MethodName{"__reduce_ex__"}>, METH_VARARGS, nullptr},
    {"__array_ufunc__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(apply_ufunc)),
     METH_VARARGS | METH_KEYWORDS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyNumberMethods make_number_methods(bool is_int) {
  PyNumberMethods number{};
  number.nb_add = ForPython<&binary<Spelling{"+"}, PyNumber_Add>>::call;
  number.nb_subtract = ForPython<&binary<Spelling{"-"}, PyNumber_Subtract>>::call;
  number.nb_multiply = ForPython<&binary<Spelling{"*"}, PyNumber_Multiply>>::call;
  number.nb_true_divide = ForPython<&binary<Spelling{"/"}, PyNumber_TrueDivide>>::call;
  number.nb_floor_divide = ForPython<&binary<Spelling{"//"}, PyNumber_FloorDivide>>::call;
  number.nb_remainder = ForPython<&binary<Spelling{"%"}, PyNumber_Remainder>>::call;
  number.nb_divmod = ForPython<&binary<Spelling{""}, PyNumber_Divmod>>::call;
  number.nb_power = ForPython<&power>::call;
  number.nb_negative = ForPython<&negative>::call;
  number.nb_positive = ForPython<&same>::call;
  number.nb_absolute = ForPython<&absolute>::call;
  number.nb_bool = ForPython<&truth>::call;
  number.nb_int = ForPython<&unary<PyNumber_Long>>::call;
  number.nb_float = ForPython<&unary<PyNumber_Float>>::call;
  if (!is_int) return number;
  number.nb_index = ForPython<&unary<PyNumber_Index>>::call;
  number.nb_invert = ForPython<&unary<PyNumber_Invert>>::call;
  number.nb_lshift = ForPython<&binary<Spelling{""}, PyNumber_Lshift>>::call;
  number.nb_rshift = ForPython<&binary<Spelling{""}, PyNumber_Rshift>>::call;
  number.nb_and = ForPython<&binary<Spelling{""}, PyNumber_And>>::call;
  number.nb_or = ForPython<&binary<Spelling{""}, PyNumber_Or>>::call;
  number.nb_xor = ForPython<&binary<Spelling{""}, PyNumber_Xor>>::call;
  return number;
}

PyNumberMethods float_methods = make_number_methods(false);
PyNumberMethods int_methods = make_number_methods(true);

PyTypeObject make_type(const char* name, PyNumberMethods& number_methods) {
  PyTypeObject type{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
  type.tp_name = name;
  type.tp_basicsize = sizeof(TracedNumber);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  type.tp_doc = "A number that a traced program took from a tensor.";
  type.tp_dealloc = destroy_number;
  type.tp_as_number = &number_methods;
  type.tp_richcompare = ForPython<&rich_compare>::call;
  type.tp_hash = ForPython<&hash>::call;
  type.tp_repr = ForPython<&unary<PyObject_Repr>>::call;
  type.tp_str = ForPython<&unary<PyObject_Str>>::call;
  type.tp_getattro = ForPython<&get_attribute>::call;
  type.tp_methods = special_methods;
  return type;
}

}  // namespace

PyTypeObject traced_float_type = make_type("thunder._C.TracedFloat", float_methods);
PyTypeObject traced_int_type = make_type("thunder._C.TracedInt", int_methods);

int init_traced_number() { return PyType_Ready(&traced_float_type) < 0 || PyType_Ready(&traced_int_type) < 0 ? -1 : 0; }

}  // namespace thunder::dispatch
