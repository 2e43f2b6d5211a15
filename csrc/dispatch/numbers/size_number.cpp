#include "dispatch/numbers/size_number.h"

#include <torch/csrc/Size.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "dispatch/numbers/size_origin.h"
#include "dispatch/numbers/traced_number.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/gil.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/python/python_ref.h"
#include "tracer/size_node.h"
#include "tracer/size_shadows.h"

namespace thunder::dispatch {
namespace {

using tracer::SizeComparison;
using tracer::SizeNode;
using tracer::SizeScope;

/// Under which PyTorch's bindings keep the size beside the tensor that they make of it.
PyObject* wrapped_number_name = nullptr;
/// Numbers beyond are no sizes: they are computed as Python computes them.
constexpr std::int64_t kLargest = std::int64_t{1} << 50U;

/// A size, or an int that may be one.
std::optional<ir::Dim> size_operand(PyObject* object) {
  if (const auto size = size_of(object)) return size->dim;
  return PyLong_CheckExact(object) || PyBool_Check(object) ? plain_size(object) : std::nullopt;
}

std::shared_ptr<SizeScope> scope_of(PyObject* left, PyObject* right) {
  const auto first = size_of(left);
  return first ? first->scope : size_of(right)->scope;
}

py::Ref int_of(PyObject* object) {
  return is_size_number(object) ? py::Ref::steal(look_at_size(object)) : py::Ref::share(object);
}

/// The type that arithmetic with a number of NumPy's gives; null: there is none.
PyObject* type_of_either(PyObject* left, PyObject* right) {
  PyObject* type = type_of_size(left);
  return type != nullptr ? type : type_of_size(right);
}

PyObject* on_plain(PyObject* left, PyObject* right, binaryfunc operation) {
  const py::Ref first = int_of(left);
  const py::Ref second = int_of(right);
  return first && second ? operation(first.get(), second.get()) : nullptr;
}

/// Whether the other operand's own methods decide: those of tensors, lists, objects of the user.
bool is_others_business(PyObject* object) {
  return !is_size_number(object) && !PyLong_Check(object) && !PyFloat_Check(object) && !PyComplex_Check(object);
}

enum class Operation : std::uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kFloorDivide,
  kRemainder,
  kShiftLeft,
  kShiftRight,
  kAnd
};
constexpr std::array<std::string_view, 8> kSymbols{"+", "-", "*", "//", "%", "<<", ">>", "&"};

/// `2**count`; nullopt: it is no factor of a size.
std::optional<ir::Dim> power_of_two(const ir::Dim& count) {
  constexpr std::int64_t kMost = 40;
  if (!count.is_concrete() || count.hint < 0 || count.hint > kMost) return std::nullopt;
  return ir::Dim(std::int64_t{1} << static_cast<std::uint64_t>(count.hint));
}

/// `size & mask`, where the mask has the last bits, or all but those.
std::optional<ir::Dim> masked(const ir::Dim& size, const ir::Dim& mask) {
  if (!mask.is_concrete()) return std::nullopt;
  const std::int64_t period = mask.hint >= 0 ? mask.hint + 1 : -mask.hint;
  if ((period & (period - 1)) != 0) return std::nullopt;
  const ir::Dim rest = tracer::floor_remainder(size, period);
  return mask.hint >= 0 ? rest : size - rest;
}

/// nullopt: Python's arithmetic, which knows no limit, gives another number where the sizes are larger.
std::optional<ir::Dim> product_within(const ir::Dim& left, const ir::Dim& right) {
  const auto fits = [](double first, double second) { return std::abs(first) * std::abs(second) <= kLargest; };
  const auto least = [](const ir::Dim& dim) { return ir::magnitude(dim, [](std::uint32_t) { return 2.0; }); };
  // Factors of terms are 64 bits wide, too.
  const bool is_product =
      fits(static_cast<double>(left.hint), static_cast<double>(right.hint)) && fits(least(left), least(right));
  return is_product ? std::optional(left * right) : std::nullopt;
}

std::optional<ir::Dim> compute_size(Operation operation, const ir::Dim& left, const ir::Dim& right) {
  const bool divides = operation == Operation::kFloorDivide || operation == Operation::kRemainder;
  if (divides && right.hint == 0) return std::nullopt;
  switch (operation) {
    case Operation::kAdd:
      return left + right;
    case Operation::kSubtract:
      return left - right;
    case Operation::kMultiply:
      return product_within(left, right);
    case Operation::kFloorDivide:
      return ir::floor_divide(left, right);
    case Operation::kRemainder:
      return tracer::floor_remainder(left, right);
    case Operation::kShiftLeft: {
      const auto factor = power_of_two(right);
      return factor ? compute_size(Operation::kMultiply, left, *factor) : std::nullopt;
    }
    case Operation::kShiftRight: {
      const auto divisor = power_of_two(right);
      return divisor ? std::optional(ir::floor_divide(left, *divisor)) : std::nullopt;
    }
    case Operation::kAnd:
      return right.is_concrete() ? masked(left, right) : masked(right, left);
  }
  return std::nullopt;
}

/// A number that is no size.
PyObject* calculate_number(PyObject* left, PyObject* right, std::string_view symbol, binaryfunc otherwise) {
  if (type_of_either(left, right) != nullptr) return on_plain(left, right, otherwise);
  PyObject* number = combine_sizes(symbol, left, right);
  return number != nullptr || PyErr_Occurred() != nullptr ? number : on_plain(left, right, otherwise);
}

PyObject* calculate_size(PyObject* left, PyObject* right, Operation operation, binaryfunc otherwise) {
  if (is_others_business(left) || is_others_business(right)) Py_RETURN_NOTIMPLEMENTED;
  return or_python_error([&]() -> PyObject* {
    const auto first = size_operand(left);
    const auto second = size_operand(right);
    const std::shared_ptr<SizeScope> scope = scope_of(left, right);
    auto result = first && second ? compute_size(operation, *first, *second) : std::nullopt;
    if (result && !is_manageable(*result, *scope)) result = std::nullopt;
    const std::string_view symbol = kSymbols[static_cast<std::size_t>(operation)];
    const bool has_float = PyFloat_CheckExact(left) || PyFloat_CheckExact(right);
    if (!result) return has_float ? calculate_number(left, right, symbol, otherwise) : on_plain(left, right, otherwise);
    const bool divides = operation == Operation::kFloorDivide || operation == Operation::kRemainder;
    if (divides && scope->shadows != nullptr) scope->shadows->require_divisor(*second);
    return make_size(scope, *result, type_of_either(left, right));
  });
}

template <Operation operation, binaryfunc otherwise>
PyObject* arithmetic(PyObject* left, PyObject* right) {
  return calculate_size(left, right, operation, otherwise);
}

/// Operators that give no size.
template <binaryfunc operation>
PyObject* on_ints(PyObject* left, PyObject* right) {
  if (is_others_business(left) || is_others_business(right)) Py_RETURN_NOTIMPLEMENTED;
  return on_plain(left, right, operation);
}

PyObject* divide_truly(PyObject* left, PyObject* right) {
  if (is_others_business(left) || is_others_business(right)) Py_RETURN_NOTIMPLEMENTED;
  return calculate_number(left, right, "/", PyNumber_TrueDivide);
}

PyObject* divide_with_remainder(PyObject* left, PyObject* right) {
  if (is_others_business(left) || is_others_business(right)) Py_RETURN_NOTIMPLEMENTED;
  const py::Ref quotient = py::Ref::steal(PyNumber_FloorDivide(left, right));
  const py::Ref rest = py::Ref::steal(quotient ? PyNumber_Remainder(left, right) : nullptr);
  return rest ? PyTuple_Pack(2, quotient.get(), rest.get()) : nullptr;
}

PyObject* power_of_size(PyObject* base, PyObject* exponent, PyObject* modulus) {
  if (is_others_business(base) || is_others_business(exponent)) Py_RETURN_NOTIMPLEMENTED;
  const bool is_of_numpy = type_of_either(base, exponent) != nullptr;
  if (modulus == Py_None && PyLong_CheckExact(exponent) && is_size_number(base)) {
    const long count = PyLong_AsLong(exponent);
    if (count == 2) return PyNumber_Multiply(base, base);
    if (count == 3) {
      const py::Ref square = py::Ref::steal(PyNumber_Multiply(base, base));
      return square ? PyNumber_Multiply(square.get(), base) : nullptr;
    }
    PyErr_Clear();
  }
  const bool may_be_float = PyFloat_CheckExact(base) || PyFloat_CheckExact(exponent) || PyLong_CheckExact(exponent);
  PyObject* number = modulus == Py_None && may_be_float && !is_of_numpy ? combine_sizes("**", base, exponent) : nullptr;
  if (number != nullptr || PyErr_Occurred() != nullptr) return number;
  const py::Ref first = int_of(base), second = int_of(exponent), third = int_of(modulus);
  return first && second && third ? PyNumber_Power(first.get(), second.get(), third.get()) : nullptr;
}

template <unaryfunc operation>
PyObject* on_int(PyObject* self) {
  const py::Ref real = py::Ref::steal(look_at_size(self));
  return real ? operation(real.get()) : nullptr;
}

PyObject* negated_size(PyObject* self) {
  return or_python_error([&]() -> PyObject* {
    const auto size = size_of(self);
    return size ? make_size(size->scope, ir::Dim(-1) * size->dim, type_of_size(self)) : on_int<PyNumber_Negative>(self);
  });
}

PyObject* inverted_size(PyObject* self) {
  return or_python_error([&]() -> PyObject* {
    const auto size = size_of(self);
    return size ? make_size(size->scope, ir::Dim(-1) * size->dim - ir::Dim(1), type_of_size(self))
                : on_int<PyNumber_Invert>(self);
  });
}

PyObject* same_size(PyObject* self) { return Py_NewRef(self); }

PyObject* absolute_size(PyObject* self) {
  const py::Ref zero = py::Ref::steal(PyLong_FromLong(0));
  const int is_negative = zero ? PyObject_RichCompareBool(self, zero.get(), Py_LT) : -1;
  return is_negative < 0 ? nullptr : is_negative == 1 ? negated_size(self) : same_size(self);
}

/// NumPy compares to a bool of its own.
PyObject* bool_of_numpy(PyObject* type, bool outcome) {
  const py::Ref number = py::Ref::steal(int_as(type, PyLong_FromLong(outcome ? 1 : 0)));
  const py::Ref one = py::Ref::steal(PyLong_FromLong(1));
  return number && one ? PyObject_RichCompare(number.get(), one.get(), Py_EQ) : nullptr;
}

/// Whether a comparison holds, which is a condition of the trace from then on; -1 with an exception.
int decide_sizes(const Size& left, SizeComparison comparison, const ir::Dim& right) {
  try {
    const tracer::Compared compared = tracer::compare_sizes(left.dim, comparison, right);
    for (const ir::Condition& condition : compared.conditions) {
      if (left.scope->shadows != nullptr) left.scope->shadows->assume(condition);
    }
    return compared.outcome ? 1 : 0;
  } catch (...) {
    set_python_error();
    return -1;
  }
}

PyObject* compare_numbers(PyObject* left, PyObject* right, int operation) {
  static constexpr std::array kComparisons{SizeComparison::kLess,    SizeComparison::kLessOrEqual,
                                           SizeComparison::kEqual,   SizeComparison::kNotEqual,
                                           SizeComparison::kGreater, SizeComparison::kGreaterOrEqual};
  if (is_others_business(right)) Py_RETURN_NOTIMPLEMENTED;
  const auto size = size_of(left);
  const auto other = size_operand(right);
  PyObject* type = type_of_either(left, right);
  if (!size || !other) {
    if (const auto decided = type != nullptr ? std::nullopt : compare_fractions(left, right, operation)) {
      return *decided < 0 ? nullptr : PyBool_FromLong(*decided);
    }
    const py::Ref first = int_of(left), second = int_of(right);
    return first && second ? PyObject_RichCompare(first.get(), second.get(), operation) : nullptr;
  }
  const int outcome = decide_sizes(*size, kComparisons[static_cast<std::size_t>(operation)], *other);
  if (outcome < 0) return nullptr;
  return type == nullptr ? PyBool_FromLong(outcome) : bool_of_numpy(type, outcome == 1);
}

int truth_of_size(PyObject* self) {
  const auto size = size_of(self);
  if (size) return decide_sizes(*size, SizeComparison::kNotEqual, 0);
  PyErr_BadInternalCall();
  return -1;
}

Py_hash_t hash_of_size(PyObject* self) {
  const py::Ref real = py::Ref::steal(look_at_size(self));
  return real ? PyObject_Hash(real.get()) : -1;
}

PyObject* attribute_of_size(PyObject* self, PyObject* name) {
  if (PyUnicode_CompareWithASCIIString(name, "node") == 0) return Py_NewRef(parts_of_size(self).node);
  PyObject* given = type_of_size(self);
  auto* type = given != nullptr ? reinterpret_cast<PyTypeObject*>(given) : &PyLong_Type;
  if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0) return Py_NewRef(reinterpret_cast<PyObject*>(type));
  // That a number has no such attribute depends on no number.
  if (_PyType_Lookup(type, name) == nullptr) {
    return PyErr_Format(PyExc_AttributeError, "'%.200s' object has no attribute '%U'", type->tp_name, name);
  }
  if (given == nullptr && PyUnicode_CompareWithASCIIString(name, "bit_length") == 0) {
    return PyObject_GenericGetAttr(self, name);
  }
  const py::Ref real = py::Ref::steal(look_at_size(self));
  return real ? PyObject_GetAttr(real.get(), name) : nullptr;
}

/// Objects have nothing else that `torch.SymInt` would not put away.
void release_parts(PyObject* self) {
  Py_CLEAR(parts_of_size(self).node);
  Py_CLEAR(parts_of_size(self).type);
}

struct SpecialName {
  char text[16];
};
/// A special method that C code looks up in the class.
template <SpecialName name>
PyObject* delegate_to_int(PyObject* self, PyObject* arguments) {
  const py::Ref real = py::Ref::steal(look_at_size(self));
  const py::Ref method = py::Ref::steal(real ? PyObject_GetAttrString(real.get(), name.text) : nullptr);
  return method ? PyObject_CallObject(method.get(), arguments) : nullptr;
}

/// `math.floor`, `round` and their like of an int.
PyObject* rounded_size(PyObject* self, PyObject* arguments) {
  if (PyTuple_GET_SIZE(arguments) == 0 && type_of_size(self) == nullptr) return Py_NewRef(self);
  return delegate_to_int<SpecialName{"__round__"}>(self, arguments);
}

PyObject* bit_length(PyObject* self, PyObject* /*unused*/) { return bit_length_of_size(self); }

PyMethodDef methods_of_size[] = {
    {"__format__", delegate_to_int<SpecialName{"__format__"}>, METH_VARARGS, nullptr},
    {"__round__", rounded_size, METH_VARARGS, nullptr},
    {"__trunc__", rounded_size, METH_VARARGS, nullptr},
    {"__floor__", rounded_size, METH_VARARGS, nullptr},
    {"__ceil__", rounded_size, METH_VARARGS, nullptr},
    {"bit_length", bit_length, METH_NOARGS, nullptr},
    {"__reduce_ex__", delegate_to_int<SpecialName{"__reduce_ex__"}>, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

template <auto kFunction>
PyType_Slot type_slot(int id) {
  return {id, reinterpret_cast<void*>(&ForPython<kFunction>::call)};
}

PyTypeObject* make_size_type() {
  std::array slots{
      type_slot<&arithmetic<Operation::kAdd, PyNumber_Add>>(Py_nb_add),
      type_slot<&arithmetic<Operation::kSubtract, PyNumber_Subtract>>(Py_nb_subtract),
      type_slot<&arithmetic<Operation::kMultiply, PyNumber_Multiply>>(Py_nb_multiply),
      type_slot<&arithmetic<Operation::kFloorDivide, PyNumber_FloorDivide>>(Py_nb_floor_divide),
      type_slot<&arithmetic<Operation::kRemainder, PyNumber_Remainder>>(Py_nb_remainder),
      type_slot<&divide_truly>(Py_nb_true_divide),
      type_slot<&arithmetic<Operation::kShiftLeft, PyNumber_Lshift>>(Py_nb_lshift),
      type_slot<&arithmetic<Operation::kShiftRight, PyNumber_Rshift>>(Py_nb_rshift),
      type_slot<&arithmetic<Operation::kAnd, PyNumber_And>>(Py_nb_and),
      type_slot<&on_ints<PyNumber_Or>>(Py_nb_or),
      type_slot<&on_ints<PyNumber_Xor>>(Py_nb_xor),
      type_slot<&divide_with_remainder>(Py_nb_divmod),
      type_slot<&power_of_size>(Py_nb_power),
      type_slot<&negated_size>(Py_nb_negative),
      type_slot<&same_size>(Py_nb_positive),
      type_slot<&absolute_size>(Py_nb_absolute),
      type_slot<&inverted_size>(Py_nb_invert),
      type_slot<&truth_of_size>(Py_nb_bool),
      type_slot<&on_int<PyNumber_Long>>(Py_nb_int),
      type_slot<&on_int<PyNumber_Index>>(Py_nb_index),
      type_slot<&on_int<PyNumber_Float>>(Py_nb_float),
      type_slot<&compare_numbers>(Py_tp_richcompare),
      type_slot<&hash_of_size>(Py_tp_hash),
      type_slot<&on_int<PyObject_Repr>>(Py_tp_repr),
      type_slot<&on_int<PyObject_Str>>(Py_tp_str),
      type_slot<&attribute_of_size>(Py_tp_getattro),
      type_slot<&release_parts>(Py_tp_finalize),
      PyType_Slot{Py_tp_methods, methods_of_size},
      PyType_Slot{0, nullptr},
  };
  // PyTorch looks for its class under a lock; imported there first, its modules would wait for themselves.
  const py::Ref imported = py::Ref::steal(py::import_module("torch"));
  if (!imported) return nullptr;
  PyObject* base = torch::get_symint_class().ptr();
  size_class.node_offset = reinterpret_cast<PyTypeObject*>(base)->tp_basicsize;
  const auto size = static_cast<int>(size_class.node_offset + static_cast<Py_ssize_t>(sizeof(SizeParts)));
  PyType_Spec spec{"thunder._C.TracedSize", size, 0, Py_TPFLAGS_DEFAULT, slots.data()};
  const py::Ref bases = py::Ref::steal(PyTuple_Pack(1, base));
  return reinterpret_cast<PyTypeObject*>(bases ? PyType_FromSpecWithBases(&spec, bases.get()) : nullptr);
}

/// A number of our class for a `torch.SymInt` that stands for a size of a trace (new reference); null: it is none, or
/// an exception is set.
PyObject* number_for(PyObject* object) {
  if (Py_TYPE(object) != reinterpret_cast<PyTypeObject*>(torch::get_symint_class().ptr())) return nullptr;
  const py::Ref held = py::Ref::steal(PyObject_GetAttrString(object, "node"));
  if (!held) return PyErr_Clear(), nullptr;  // its `__init__` has not run yet
  const c10::SymNode node = unwrapped_node(held.get());
  const auto* size = dynamic_cast<const SizeNode*>(node.get());
  return size == nullptr ? nullptr : make_size(size->scope(), size->dim());
}

std::optional<ir::Dim> size_beside(const at::Tensor& tensor) {
  const GilHold gil;  // bindings call operators without it
  const py::Ref object = py::Ref::steal(wrap_tensor(tensor));
  const py::Ref number = py::Ref::steal(object ? PyObject_GenericGetAttr(object.get(), wrapped_number_name) : nullptr);
  if (!number) return PyErr_Clear(), std::nullopt;
  const auto size = size_of(number.get());
  return size ? std::optional(size->dim) : std::nullopt;
}

}  // namespace

PyObject* present_sizes(PyObject* value) {
  if (size_class.type == nullptr) return value;
  if (PyObject* number = number_for(value)) {
    Py_DECREF(value);
    return number;
  }
  // A `torch.Size`, or a tuple of strides, that code in C has just made.
  const bool is_new = THPSize_Check(value) || (PyTuple_CheckExact(value) && Py_REFCNT(value) == 1);
  for (Py_ssize_t i = 0; is_new && i < PyTuple_GET_SIZE(value); ++i) {
    PyObject* item = PyTuple_GET_ITEM(value, i);
    PyObject* number = number_for(item);
    if (number == nullptr) continue;
    PyTuple_SET_ITEM(value, i, number);
    Py_DECREF(item);
  }
  if (PyErr_Occurred() == nullptr) return value;
  Py_DECREF(value);
  return nullptr;
}

std::optional<ir::Dim> size_by_operation(std::string_view symbol, const ir::Dim& left, const ir::Dim& right) {
  const auto found = std::ranges::find(kSymbols, symbol);
  if (found == kSymbols.end()) return std::nullopt;
  return compute_size(static_cast<Operation>(found - kSymbols.begin()), left, right);
}

std::optional<ir::Dim> plain_size(PyObject* number) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow != 0 || value > kLargest || value < -kLargest) return std::nullopt;
  return ir::Dim(static_cast<std::int64_t>(value));
}

bool is_short(const ir::Dim& size) {
  constexpr std::size_t kLongest = 2000;
  return ir::to_string(size).size() <= kLongest;
}

bool is_manageable(const ir::Dim& size, const SizeScope& scope) {
  return is_short(size) && (scope.shadows == nullptr || scope.shadows->keep_within_range(size));
}

PyObject* make_shape(PyObject* sequence) {
  const Py_ssize_t count = Py_SIZE(sequence);
  PyObject* const* items = PySequence_Fast_ITEMS(sequence);
  if (std::none_of(items, items + count, is_size_number)) return nullptr;
  const py::Ref numbers = py::Ref::steal(PyTuple_New(count));
  for (Py_ssize_t i = 0; numbers && i < count; ++i) {
    const auto size = size_of(items[i]);
    PyObject* number = size ? PyLong_FromLongLong(size->dim.hint) : Py_NewRef(items[i]);
    if (number == nullptr) return nullptr;
    PyTuple_SET_ITEM(numbers.get(), i, number);
  }
  PyObject* shape = numbers ? PyObject_CallOneArg(reinterpret_cast<PyObject*>(&THPSizeType), numbers.get()) : nullptr;
  for (Py_ssize_t i = 0; shape != nullptr && i < count; ++i) {
    if (!is_size_number(items[i])) continue;
    Py_DECREF(PyTuple_GET_ITEM(shape, i));
    PyTuple_SET_ITEM(shape, i, Py_NewRef(items[i]));
  }
  return shape;
}

int init_size_number() {
  if (size_class.type != nullptr) return 0;
  size_class.type = make_size_type();
  wrapped_number_name = PyUnicode_InternFromString("_wrapped_number");
  tracer::wrapped_size_of = &size_beside;
  return size_class.type == nullptr || wrapped_number_name == nullptr ? -1 : 0;
}

}  // namespace thunder::dispatch
