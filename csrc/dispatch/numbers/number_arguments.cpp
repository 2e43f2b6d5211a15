#include "dispatch/numbers/number_arguments.h"

#include <ATen/ops/zeros_like.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <array>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <utility>

#include "dispatch/call/thread_state.h"
#include "dispatch/numbers/size_number.h"
#include "dispatch/numbers/size_origin.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/loop/interpreted_getter.h"
#include "tracer/recorder.h"
#include "tracer/sizes_as_ints.h"
#include "tracer/trace_tensor.h"

namespace thunder::dispatch {

PyObject* placeholder(PyObject* number) {
  return python_type_of(number) == &PyFloat_Type ? PyFloat_FromDouble(0.0) : PyLong_FromLong(0);
}

namespace {

using interpreter::NativeCall;

bool is_method_of_tensor(PyObject* callable, const NativeCall& call) {
  return call.self != nullptr && is_tensor(call.self) && !name_of(callable).empty();
}

/// The position of the number that fills a tensor; -1: the function makes none.
std::ptrdiff_t fill_position(PyObject* callable, const NativeCall& call) {
  const std::string_view name = name_of(callable);
  if (name == "new_full" && is_method_of_tensor(callable, call)) return 1;
  if (!module_of(callable).starts_with("torch")) return -1;
  if (name == "full" || name == "full_like") return 1;
  return name == "tensor" || name == "as_tensor" || name == "scalar_tensor" ? 0 : -1;
}

/// Operations that multiply an operand by a number which cannot be a tensor.
struct Scaling {
  std::string_view name;
  const char* keyword;
};
constexpr std::array kScalings{Scaling{"add", "alpha"}, Scaling{"sub", "alpha"}, Scaling{"subtract", "alpha"},
                               Scaling{"addcdiv", "value"}, Scaling{"addcmul", "value"}};

/// A number that the program computes, as an object of Python or as a tensor that PyTorch would read.
bool is_computed_number(PyObject* object) {
  if (is_traced_number(object)) return true;
  return is_traced_tensor(object) && unpack_tensor(object).dim() == 0 && !unpack_tensor(object).requires_grad();
}

/// The position among the keywords of the number that scales an operand; -1: none does.
Py_ssize_t scale_position(PyObject* callable, const NativeCall& call) {
  std::string_view name = name_of(callable);
  if (name.ends_with('_')) name.remove_suffix(1);
  const auto* row = std::ranges::find(kScalings, name, &Scaling::name);
  for (Py_ssize_t i = 0; row != kScalings.end() && call.names != nullptr && i < PyTuple_GET_SIZE(call.names); ++i) {
    if (!is_computed_number(call.arguments[call.count + static_cast<std::size_t>(i)])) continue;
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(call.names, i), row->keyword) == 0) return i;
  }
  return -1;
}

/// The dtype of what an operation makes of tensors, of which there is one.
at::ScalarType promoted_dtype(const NativeCall& call) {
  std::optional<at::ScalarType> dtype;
  const auto add = [&](PyObject* operand) {
    if (operand == nullptr || !is_tensor(operand)) return;
    const at::ScalarType next = unpack_tensor(operand).scalar_type();
    dtype = dtype ? c10::promoteTypes(*dtype, next) : next;
  };
  add(call.self);
  std::for_each(call.arguments, call.arguments + call.count, add);
  return *dtype;
}

/// Calls the function with the number multiplied into the operand. Null with an exception.
PyObject* call_scaled(PyObject* callable, const NativeCall& call, Py_ssize_t position) {
  std::vector<py::Ref> arguments;
  for (std::size_t i = 0; i < total(call); ++i) arguments.push_back(py::Ref::share(call.arguments[i]));
  const auto number = arguments.begin() + static_cast<std::ptrdiff_t>(call.count) + position;
  const py::Ref factor =
      is_traced_number(number->get()) ? py::Ref::steal(tensor_of_number(number->get(), promoted_dtype(call))) : *number;
  arguments.erase(number);
  const std::size_t operand = call.self != nullptr ? 0 : 1;
  if (!factor || operand >= call.count) return nullptr;
  arguments[operand] = py::Ref::steal(PyNumber_Multiply(arguments[operand].get(), factor.get()));
  const py::Ref names = py::Ref::steal(PyList_New(0));
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(call.names); ++i) {
    if (i != position && PyList_Append(names.get(), PyTuple_GET_ITEM(call.names, i)) < 0) return nullptr;
  }
  const py::Ref others = py::Ref::steal(names ? PyList_AsTuple(names.get()) : nullptr);
  if (!others || !arguments[operand]) return nullptr;
  NativeCall scaled = call;
  scaled.names = others.get();
  return call_with(callable, scaled, arguments);
}

bool is_float(PyObject* number) {
  if (is_traced_number(number)) return python_type_of(number) == &PyFloat_Type;
  return unpack_tensor(number).is_floating_point();
}

/// Whether it scales integers by a float, which eager refuses.
bool scales_integers(const NativeCall& call, Py_ssize_t position) {
  const bool is_integral = std::all_of(call.arguments, call.arguments + call.count, [](PyObject* operand) {
    return !is_tensor(operand) || c10::isIntegralType(unpack_tensor(operand).scalar_type(), /*includeBool=*/true);
  });
  const bool is_self = call.self != nullptr && is_tensor(call.self) && unpack_tensor(call.self).is_floating_point();
  return is_integral && !is_self && is_float(call.arguments[call.count + static_cast<std::size_t>(position)]);
}

bool has_true(const NativeCall& call, const char* name) {
  for (Py_ssize_t i = 0; call.names != nullptr && i < PyTuple_GET_SIZE(call.names); ++i) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(call.names, i), name) != 0) continue;
    return call.arguments[call.count + static_cast<std::size_t>(i)] == Py_True;
  }
  return false;
}

void set_version(const at::Tensor& tensor, std::int64_t version) {
  c10::VariableVersion counter = tensor.unsafeGetTensorImpl()->version_counter();
  if (counter.enabled()) counter.set_version(version);
}

/// Fills a tensor by an operation that takes the number as a tensor.
PyObject* call_filling(PyObject* callable, const NativeCall& call, std::size_t position) {
  PyObject* number = call.arguments[position];
  std::vector<py::Ref> arguments;
  for (std::size_t i = 0; i < total(call); ++i) arguments.push_back(py::Ref::share(call.arguments[i]));
  arguments[position] = py::Ref::steal(placeholder(number));
  py::Ref made;
  if (position == 0 && name_of(callable) != "scalar_tensor") {  // torch.tensor(number, …)
    const py::Ref torch = py::Ref::steal(py::import_module("torch"));
    const py::Ref function = py::Ref::steal(torch ? PyObject_GetAttrString(torch.get(), "full") : nullptr);
    const py::Ref shape = py::Ref::steal(PyTuple_New(0));
    std::vector<PyObject*> values{shape.get()};
    for (const py::Ref& argument : arguments) values.push_back(argument.get());
    made = py::Ref::steal(function ? PyObject_Vectorcall(function.get(), values.data(), call.count + 1, call.names)
                                   : nullptr);
  } else {
    made = py::Ref::steal(call_with(callable, call, arguments));
  }
  const py::Ref value = py::Ref::steal(made ? tensor_of_number(number) : nullptr);
  py::Ref filled = py::Ref::steal(value ? PyObject_CallMethod(made.get(), "fill_", "O", value.get()) : nullptr);
  if (!filled) return nullptr;
  set_version(unpack_tensor(filled.get()), 0);  // for eager it was made so, and not written to
  return filled.release();
}

/// Whether a function does with a tensor what it does not do with a number: `masked_fill` refuses a number that the
/// dtype cannot hold, `lerp` one for integers, and of two numbers `where` makes the default dtype.
bool tells_numbers_from_tensors(PyObject* callable, const NativeCall& call) {
  std::string_view name = name_of(callable);
  if (name.ends_with('_')) name.remove_suffix(1);
  const auto is_tensor_at = [&](std::size_t position) {
    return position < call.count && is_tensor(call.arguments[position]);
  };
  if (name == "where") return call.self == nullptr && !is_tensor_at(1) && !is_tensor_at(2);
  PyObject* target = call.self != nullptr ? call.self : is_tensor_at(0) ? call.arguments[0] : nullptr;
  if (target == nullptr || !is_tensor(target)) return false;
  const at::ScalarType dtype = unpack_tensor(target).scalar_type();
  if (name == "masked_fill") return dtype != at::kFloat && dtype != at::kDouble;
  return name == "lerp" && c10::isIntegralType(dtype, /*includeBool=*/true);
}

bool is_sequence(PyObject* object) { return PyList_Check(object) || PyTuple_Check(object); }

/// The tensor of a number, of the dtype that PyTorch makes of it where there is no tensor beside. Null with an
/// exception.
PyObject* tensor_like_number(PyObject* number) {
  if (python_type_of(number) != &PyFloat_Type) return tensor_of_number(number);
  const at::ScalarType dtype = c10::get_default_dtype_as_scalartype();
  const py::Ref held = py::Ref::steal(tensor_of_number(number, dtype));
  if (!held || !is_tensor(held.get())) return Py_XNewRef(held.get());
  return or_python_error([&] { return wrap_tensor(unpack_tensor(held.get()).to(dtype)); });
}

}  // namespace

bool is_traced_tensor(PyObject* object) {
  return object != nullptr && is_tensor(object) && tracer::is_trace_tensor(unpack_tensor(object));
}

std::string_view name_of(PyObject* callable) {
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  if (Py_TYPE(callable) == &PyMethodDescr_Type) {
    return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method->ml_name;
  }
  return {};
}

std::string_view module_of(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return {};
  PyObject* self = PyCFunction_GET_SELF(callable);
  PyObject* module = reinterpret_cast<PyCFunctionObject*>(callable)->m_module;
  if (self != nullptr && PyType_Check(self)) return reinterpret_cast<PyTypeObject*>(self)->tp_name;
  const char* name = self != nullptr && PyModule_Check(self)             ? PyModule_GetName(self)
                     : module != nullptr && PyUnicode_CheckExact(module) ? PyUnicode_AsUTF8(module)
                                                                         : nullptr;
  PyErr_Clear();
  return name == nullptr ? std::string_view() : name;
}

bool is_torch_function(PyObject* callable, const NativeCall& call) {
  return is_method_of_tensor(callable, call) || module_of(callable).starts_with("torch");
}

std::size_t total(const NativeCall& call) {
  return call.count + (call.names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(call.names)));
}

bool any_argument(const NativeCall& call, bool (*predicate)(PyObject*)) {
  return std::any_of(call.arguments, call.arguments + total(call), predicate);
}

bool holds_traced_numbers(PyObject* object) {
  if (!is_sequence(object)) return false;
  PyObject** items = PySequence_Fast_ITEMS(object);
  return std::any_of(items, items + Py_SIZE(object), is_traced_number);
}

bool is_list_of_numbers(PyObject* object) {
  if (!is_sequence(object)) return false;
  PyObject** items = PySequence_Fast_ITEMS(object);
  return Py_SIZE(object) > 0 && std::all_of(items, items + Py_SIZE(object), [](PyObject* item) {
           return is_traced_number(item) || PyFloat_Check(item) || PyLong_Check(item);
         });
}

bool holds_int(const tracer::Recorder& recorder, PyObject* object) {
  if (!is_traced_tensor(object)) return false;
  const at::Tensor& tensor = unpack_tensor(object);
  return tracer::trace_impl(tensor)->state()->recorder == &recorder &&
         c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false) && tensor.numel() == 1 &&
         !recorder.tensors.real_constant(tensor).defined();
}

namespace {

/// Calls `called`, which stands for the callable of `call`.
PyObject* call_in_place_of(PyObject* called, PyObject* callable, const NativeCall& call,
                           const std::vector<py::Ref>& arguments) {
  std::vector<PyObject*> values{nullptr};
  const bool is_descriptor = Py_TYPE(callable) == &PyMethodDescr_Type || Py_TYPE(callable) == &PyWrapperDescr_Type;
  const bool is_unbound = call.self != nullptr && is_descriptor;
  if (is_unbound) values.push_back(call.self);
  for (const py::Ref& argument : arguments) values.push_back(argument.get());
  const std::size_t count = call.count + (is_unbound ? 1 : 0);
  return PyObject_Vectorcall(called, values.data() + 1, count | PY_VECTORCALL_ARGUMENTS_OFFSET, call.names);
}

}  // namespace

PyObject* call_with(PyObject* callable, const NativeCall& call, const std::vector<py::Ref>& arguments) {
  return call_in_place_of(callable, callable, call, arguments);
}

NativeCall with_arguments(const NativeCall& call, const std::vector<py::Ref>& arguments,
                          std::vector<PyObject*>& values) {
  values.clear();
  for (const py::Ref& argument : arguments) values.push_back(argument.get());
  NativeCall other = call;
  other.arguments = values.data();
  return other;
}

PyObject* call_observed(PyObject* callable, const NativeCall& call, const std::vector<py::Ref>& arguments) {
  const py::Ref observed = interpreter::interpreted_call(callable);
  return observed ? call_in_place_of(observed.get(), callable, call, arguments) : nullptr;
}

std::optional<std::vector<py::Ref>> replaced(const NativeCall& call, bool (*is_one)(PyObject* object),
                                             PyObject* (*replace)(PyObject* number)) {
  std::vector<py::Ref> arguments;
  for (std::size_t i = 0; i < total(call); ++i) {
    PyObject* argument = call.arguments[i];
    arguments.push_back(is_one(argument) ? py::Ref::steal(replace(argument)) : py::Ref::share(argument));
    if (!arguments.back()) return std::nullopt;
  }
  return arguments;
}

namespace {

bool holds_sizes(PyObject* object) {
  if (is_size_number(object)) return true;
  if (!is_sequence(object)) return false;
  PyObject** items = PySequence_Fast_ITEMS(object);
  return std::any_of(items, items + Py_SIZE(object), holds_sizes);
}

/// An argument with ints in the place of sizes, also in lists and tuples.
py::Ref with_ints(PyObject* object) {
  if (is_size_number(object)) return py::Ref::steal(look_at_size(object));
  if (!holds_sizes(object)) return py::Ref::share(object);
  const py::Ref list = py::Ref::steal(PyList_New(0));
  for (Py_ssize_t i = 0; list && i < Py_SIZE(object); ++i) {
    const py::Ref item = with_ints(PySequence_Fast_GET_ITEM(object, i));
    if (!item || PyList_Append(list.get(), item.get()) < 0) return nullptr;
  }
  return PyList_Check(object) || !list ? list : py::Ref::steal(PyList_AsTuple(list.get()));
}

}  // namespace

namespace {

/// The place in the schema of an argument; nullopt: it is not known.
std::optional<std::size_t> place_in_schema(const c10::OperatorHandle& op, const NativeCall& call, std::size_t i) {
  const auto& parameters = op.schema().arguments();
  if (i < call.count) return i + (call.self != nullptr && is_tensor(call.self) ? 1 : 0);
  const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(call.names, static_cast<Py_ssize_t>(i - call.count)));
  const auto found = std::ranges::find(parameters, std::string_view(name), &c10::Argument::name);
  return found == parameters.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - parameters.begin()));
}

/// The overloads of a function of PyTorch.
std::vector<c10::OperatorHandle> overloads_of(PyObject* callable) {
  std::vector<c10::OperatorHandle> overloads;
  const auto name = c10::Symbol::fromQualString("aten::" + std::string(name_of(callable)));
  for (const auto& each : torch::jit::getAllOperatorsFor(name)) {
    const auto op = c10::Dispatcher::singleton().findSchema({each->schema().name(), each->schema().overload_name()});
    if (op) overloads.push_back(*op);
  }
  return overloads;
}

/// The type of an argument, or of the items of a list that it is.
std::optional<c10::TypeKind> kind_in_schema(const c10::OperatorHandle& op, std::size_t place) {
  if (place >= op.schema().arguments().size()) return std::nullopt;
  c10::TypePtr type = op.schema().arguments()[place].real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  const auto list = type->cast<c10::ListType>();
  return (list ? list->getElementType() : type)->kind();
}

/// Whether a parameter is a plain integer, or a list of them, and does not choose a dimension.
bool is_plain_int(const c10::OperatorHandle& op, std::size_t place) {
  return kind_in_schema(op, place) == c10::TypeKind::IntType &&
         op.schema().arguments()[place].name().find("dim") == std::string::npos;
}

/// Whether a parameter is one, or a number beside one: the ends of `linspace` go where the number of its steps goes.
bool goes_with_plain_ints(const c10::OperatorHandle& op, std::size_t place) {
  if (is_plain_int(op, place)) return true;
  const auto places = std::views::iota(std::size_t{0}, op.schema().arguments().size());
  return kind_in_schema(op, place) == c10::TypeKind::NumberType &&
         std::ranges::any_of(places, [&](std::size_t other) { return is_plain_int(op, other); });
}

/// The sizes that an argument is, or lists, with numbers among them; empty: it is something else.
std::vector<c10::SymInt> sizes_given(PyObject* argument) {
  std::vector<c10::SymInt> sizes;
  PyObject* const* items = is_sequence(argument) ? PySequence_Fast_ITEMS(argument) : &argument;
  for (Py_ssize_t i = 0; i < (is_sequence(argument) ? Py_SIZE(argument) : 1); ++i) {
    if (const auto size = size_of(items[i])) {
      sizes.emplace_back(c10::SymNode(c10::make_intrusive<tracer::SizeNode>(size->scope, size->dim)));
    } else if (PyLong_CheckExact(items[i])) {
      sizes.emplace_back(PyLong_AsLongLong(items[i]));
    } else {
      return {};
    }
  }
  if (PyErr_Occurred() != nullptr) return PyErr_Clear(), std::vector<c10::SymInt>();
  return sizes;
}

/// Such sizes as numbers, in what is a list or tuple as the argument is. Null with an exception.
py::Ref hints_of(PyObject* argument, std::span<const c10::SymInt> sizes) {
  const auto number = [](const c10::SymInt& size) { return PyLong_FromLongLong(tracer::dim_of(size).hint); };
  if (!is_sequence(argument)) return py::Ref::steal(number(sizes[0]));
  py::Ref list = py::Ref::steal(PyList_New(0));
  for (const c10::SymInt& size : sizes) {
    const py::Ref item = py::Ref::steal(number(size));
    if (!list || !item || PyList_Append(list.get(), item.get()) < 0) return nullptr;
  }
  return PyList_Check(argument) ? list : py::Ref::steal(PyList_AsTuple(list.get()));
}

/// Calls a function that takes plain integers where it is given sizes with numbers, while what is recorded gets the
/// sizes. Zero: it is another function.
int call_on_plain_ints(PyObject* callable, const NativeCall& call, PyObject** result) {
  if (!is_torch_function(callable, call)) return 0;
  const std::vector<c10::OperatorHandle> overloads = overloads_of(callable);
  const auto takes_ints = [&](const c10::OperatorHandle& op) {
    for (std::size_t i = 0; i < total(call); ++i) {
      const auto place = holds_sizes(call.arguments[i]) ? place_in_schema(op, call, i) : std::nullopt;
      if (place && goes_with_plain_ints(op, *place)) return true;
    }
    return false;
  };
  const auto op = std::ranges::find_if(overloads, takes_ints);
  if (op == overloads.end()) return 0;
  tracer::SizesAsInts::Sizes sizes;
  std::vector<py::Ref> arguments;
  for (std::size_t i = 0; i < total(call); ++i) {
    PyObject* const argument = call.arguments[i];
    arguments.push_back(py::Ref::share(argument));
    if (!holds_sizes(argument)) continue;
    const auto place = place_in_schema(*op, call, i);
    std::vector<c10::SymInt> given = place ? sizes_given(argument) : std::vector<c10::SymInt>();
    if (given.empty()) return 0;
    arguments.back() = hints_of(argument, given);
    if (!arguments.back()) return -1;
    sizes.emplace(*place, std::move(given));
  }
  const tracer::SizesAsInts given("aten::" + std::string(name_of(callable)), std::move(sizes));
  *result = call_with(callable, call, arguments);
  if (!given.are_taken()) {  // the numbers went elsewhere
    const py::SavedError error;
    for (std::size_t i = 0; i < total(call); ++i) static_cast<void>(with_ints(call.arguments[i]));
  }
  if (*result == nullptr) return -1;
  *result = present_sizes(*result);
  return *result == nullptr ? -1 : 1;
}

/// Whether `torch.div` or `torch.floor_divide` gives the quotient of Python for operands that are not negative.
bool divides_ints(PyObject* callable, const NativeCall& call) {
  const std::string_view name = name_of(callable);
  if (call.self != nullptr && is_tensor(call.self)) return false;
  if (call.count != 2 || !module_of(callable).starts_with("torch")) return false;
  if (name == "floor_divide") return total(call) == 2;
  if (name != "div" || total(call) != 3 ||
      PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(call.names, 0), "rounding_mode") != 0) {
    return false;
  }
  PyObject* mode = call.arguments[2];
  return PyUnicode_Check(mode) &&
         (PyUnicode_CompareWithASCIIString(mode, "trunc") == 0 || PyUnicode_CompareWithASCIIString(mode, "floor") == 0);
}

/// Notes the quotient of sizes that a tensor holds. False with an exception.
bool note_quotient(PyObject* callable, const NativeCall& call, PyObject* tensor) {
  if (!divides_ints(callable, call)) return true;
  ir::Dims operands;
  for (std::size_t i = 0; i < 2; ++i) {
    PyObject* operand = call.arguments[i];
    const auto size = dim_of_size_number(operand);
    if (!size && !PyLong_CheckExact(operand)) return true;
    operands.push_back(size ? *size : ir::Dim(PyLong_AsLongLong(operand)));
    if (PyErr_Occurred() != nullptr) return PyErr_Clear(), true;
  }
  using Kind = ir::Condition::Kind;
  const bool is_python = tracer::is_certain({Kind::kAtMost, ir::Dim(0), operands[0]}) &&
                         tracer::is_certain({Kind::kAtMost, ir::Dim(1), operands[1]});
  if (!is_python) return true;
  const py::Ref quotient = py::Ref::steal(PyNumber_FloorDivide(call.arguments[0], call.arguments[1]));
  if (quotient) note_size_in(tensor, quotient.get());
  return static_cast<bool>(quotient);
}

}  // namespace

namespace {

/// -1 with an exception.
int is_at_most(const py::Ref& left, const py::Ref& right) {
  return left && right ? PyObject_RichCompareBool(left.get(), right.get(), Py_LE) : -1;
}

/// Decides whether `narrow` gets a part that is within the dimension; it raises otherwise. False with an exception.
bool decide_range(PyObject* callable, const NativeCall& call) {
  constexpr std::size_t kCount = 3;  // dim, start, length
  const bool is_method = call.self != nullptr && is_tensor(call.self);
  const std::size_t first = is_method ? 0 : 1;
  if (name_of(callable) != "narrow" || call.count != first + kCount || total(call) != call.count) return true;
  PyObject* tensor = is_method ? call.self : call.arguments[0];
  PyObject* const* arguments = call.arguments + first;
  const auto is_int = [](PyObject* object) { return is_size_number(object) || PyLong_CheckExact(object); };
  if (!is_tensor(tensor) || !std::all_of(arguments, arguments + kCount, is_int)) return true;
  PyObject* size = PyObject_CallMethod(tensor, "size", "O", arguments[0]);
  const py::Ref extent = py::Ref::steal(size == nullptr ? nullptr : present_sizes(size));
  if (!extent) return PyErr_Clear(), true;  // `narrow` says what is wrong
  const py::Ref zero = py::Ref::steal(PyLong_FromLong(0));
  const py::Ref start = py::Ref::share(arguments[1]), length = py::Ref::share(arguments[2]);
  const int is_from_begin = is_at_most(zero, start);
  const py::Ref least = is_from_begin == 1 ? zero : py::Ref::steal(PyNumber_Negative(extent.get()));
  const py::Ref end = py::Ref::steal(PyNumber_Add(start.get(), length.get()));
  return is_from_begin >= 0 && is_at_most(least, start) >= 0 && is_at_most(zero, length) >= 0 &&
         is_at_most(end, is_from_begin == 1 ? extent : zero) >= 0;
}

/// The place among the arguments of the least length of `torch.bincount`, where that is a size; nullopt: it is none.
std::optional<std::size_t> place_of_least_length(PyObject* callable, const NativeCall& call) {
  if (name_of(callable) != "bincount" || !is_torch_function(callable, call)) return std::nullopt;
  const c10::OperatorHandle op = overloads_of(callable).at(0);
  for (std::size_t i = 0; i < total(call); ++i) {
    const auto place = place_in_schema(op, call, i);
    const bool is_length =
        place && *place < op.schema().arguments().size() && op.schema().arguments()[*place].name() == "minlength";
    if (is_length && is_size_number(call.arguments[i])) return i;
  }
  return std::nullopt;
}

/// `torch.bincount` of a least length that is a size: how many bins there are follows from the data, and zeros go
/// behind them up to that length. Zero: it is another function.
int call_bincount(PyObject* callable, const NativeCall& call, PyObject** result) {
  const auto place = has_function_mode() ? std::nullopt : place_of_least_length(callable, call);
  if (!place) return 0;
  const py::Ref least = py::Ref::share(call.arguments[*place]);
  const py::Ref zero = py::Ref::steal(PyLong_FromLong(0));
  const int is_length = is_at_most(zero, least);
  if (is_length != 1) return is_length;
  std::vector<py::Ref> arguments;
  for (std::size_t i = 0; i < total(call); ++i) arguments.push_back(py::Ref::share(call.arguments[i]));
  arguments[*place] = zero;
  const py::Ref made = py::Ref::steal(call_with(callable, call, arguments));
  PyObject* size = made ? PyObject_CallMethod(made.get(), "size", "i", 0) : nullptr;
  const py::Ref length = py::Ref::steal(size == nullptr ? nullptr : present_sizes(size));
  const int is_enough = is_at_most(least, length);
  if (is_enough != 0) return *result = is_enough > 0 ? Py_NewRef(made.get()) : nullptr, is_enough;
  const py::Ref missing = py::Ref::steal(PyNumber_Subtract(least.get(), length.get()));
  const py::Ref torch = py::Ref::steal(py::import_module("torch"));
  if (!missing || !torch) return -1;
  *result = PyObject_CallMethod(torch.get(), "constant_pad_nd", "O(iO)i", made.get(), 0, missing.get(), 0);
  return *result == nullptr ? -1 : 1;
}

}  // namespace

int call_with_sizes(PyObject* callable, const NativeCall& call, PyObject** result) {
  if (!any_argument(call, holds_sizes)) return 0;
  if (!decide_range(callable, call)) return -1;
  // `torch.tensor(size)` would copy the number. A function mode is told of the call as the program makes it.
  const bool copies = fill_position(callable, call) == 0 && call.count > 0 && is_size_number(call.arguments[0]);
  if (copies && !has_function_mode()) {
    const py::Ref number = py::Ref::steal(traced_number_of_size(call.arguments[0]));
    if (PyErr_Occurred() != nullptr) return -1;
    if (number && !has_true(call, "requires_grad")) {
      std::vector<PyObject*> values(call.arguments, call.arguments + total(call));
      values[0] = number.get();
      NativeCall with_number = call;
      with_number.arguments = values.data();
      *result = call_filling(callable, with_number, 0);
      if (*result == nullptr) return -1;
      note_size_in(*result, call.arguments[0]);
      return 1;
    }
  }
  if (const int status = call_bincount(callable, call, result); status != 0) return status;
  if (const int status = call_on_plain_ints(callable, call, result); status != 0) return status;
  std::vector<py::Ref> arguments;
  for (std::size_t i = 0; i < total(call); ++i) arguments.push_back(py::Ref::share(call.arguments[i]));
  const bool takes_ints = copies || tells_numbers_from_tensors(callable, call);
  *result = takes_ints ? nullptr : call_with(callable, call, arguments);
  if (takes_ints || (*result == nullptr && PyErr_ExceptionMatches(PyExc_TypeError) != 0)) {
    PyErr_Clear();
    for (py::Ref& argument : arguments) {
      argument = with_ints(argument.get());
      if (!argument) return -1;
    }
    *result = call_with(callable, call, arguments);
  }
  if (*result == nullptr) return -1;
  if (!note_quotient(callable, call, *result)) {
    Py_CLEAR(*result);
    return -1;
  }
  *result = present_sizes(*result);
  return 1;
}

bool takes_size_at(PyObject* callable, const NativeCall& call, std::size_t i) {
  if (name_of(callable) == "arange") return true;
  const std::vector<c10::OperatorHandle> overloads = overloads_of(callable);
  return std::ranges::any_of(overloads, [&](const c10::OperatorHandle& op) {
    const auto place = place_in_schema(op, call, i);
    if (!place) return false;
    if (goes_with_plain_ints(op, *place)) return true;
    // Sizes may be given one by one: `x.view(2, n)`.
    const auto is_positional = [](const c10::Argument& each) { return !each.kwarg_only(); };
    const auto count = static_cast<std::size_t>(std::ranges::count_if(op.schema().arguments(), is_positional));
    if (count == 0) return false;
    return kind_in_schema(op, i < call.count ? std::min(*place, count - 1) : *place) == c10::TypeKind::SymIntType;
  });
}

bool takes_tensor_at(PyObject* callable, const NativeCall& call, std::size_t i) {
  const std::size_t start = call.self != nullptr && is_tensor(call.self) ? 1 : 2;
  if (name_of(callable) == "narrow" && i >= start) return false;  // it reads that tensor itself
  const auto name = c10::Symbol::fromQualString("aten::" + std::string(name_of(callable)));
  const bool is_list = is_sequence(call.arguments[i]);
  return std::ranges::any_of(torch::jit::getAllOperatorsFor(name), [&](const auto& overload) {
    const auto op =
        c10::Dispatcher::singleton().findSchema({overload->schema().name(), overload->schema().overload_name()});
    const auto place = op ? place_in_schema(*op, call, i) : std::nullopt;
    if (!place || *place >= op->schema().arguments().size()) return false;
    const c10::Argument& parameter = op->schema().arguments()[*place];
    if (i < call.count && parameter.kwarg_only()) return false;
    c10::TypePtr type = parameter.real_type();
    if (const auto optional = type->template cast<c10::OptionalType>()) type = optional->getElementType();
    const auto list = type->template cast<c10::ListType>();
    return is_list == (list != nullptr) && (list ? list->getElementType() : type)->kind() == c10::TypeKind::TensorType;
  });
}

bool takes_sizes_from_data(PyObject* callable, const NativeCall& call) {
  for (std::size_t i = 0; i < total(call); ++i) {
    if (is_traced_number(call.arguments[i]) && takes_size_at(callable, call, i)) return true;
  }
  return false;
}

PyObject* call_with_data_sizes(PyObject* callable, const NativeCall& call) {
  std::vector<py::Ref> arguments;
  for (std::size_t i = 0; i < total(call); ++i) {
    PyObject* argument = call.arguments[i];
    if (is_traced_number(argument)) {
      const bool is_size = takes_size_at(callable, call, i);
      // `linspace` takes its ends as tensors, too.
      const bool is_end = is_size && python_type_of(argument) == &PyFloat_Type && takes_tensor_at(callable, call, i);
      arguments.push_back(py::Ref::steal(is_end    ? tensor_of_number(argument)
                                         : is_size ? size_or_number(argument)
                                                   : look_at(argument)));
    } else {
      arguments.push_back(py::Ref::share(argument));
    }
    if (!arguments.back()) return nullptr;
  }
  std::vector<PyObject*> values;
  PyObject* result = nullptr;
  const int status = call_with_sizes(callable, with_arguments(call, arguments, values), &result);
  return status == 0 ? call_with(callable, call, arguments) : result;
}

int call_with_computed(PyObject* callable, const NativeCall& call, PyObject** result) {
  if (has_function_mode()) return 0;
  const std::ptrdiff_t filled = fill_position(callable, call);
  if (filled >= 0 && filled < static_cast<std::ptrdiff_t>(call.count) && is_traced_number(call.arguments[filled]) &&
      !has_true(call, "requires_grad")) {
    *result = call_filling(callable, call, static_cast<std::size_t>(filled));
    return *result == nullptr ? -1 : 1;
  }
  const Py_ssize_t scale = scale_position(callable, call);
  if (scale >= 0 && call.count > (call.self != nullptr ? 0 : 1) && !scales_integers(call, scale)) {
    *result = call_scaled(callable, call, scale);
    return *result == nullptr ? -1 : 1;
  }
  if (!any_argument(call, is_traced_number)) return 0;
  if (filled >= 0 || !(is_traced_tensor(call.self) || any_argument(call, is_traced_tensor))) return 0;
  if (tells_numbers_from_tensors(callable, call)) return 0;
  const auto arguments = replaced(call, is_traced_number, [](PyObject* number) { return tensor_of_number(number); });
  if (!arguments) return -1;
  *result = call_with(callable, call, *arguments);
  if (*result != nullptr) return 1;
  // It takes no tensor there, or takes it for something else; what it says of the number itself is said again.
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0 && PyErr_ExceptionMatches(PyExc_RuntimeError) == 0) return -1;
  PyErr_Clear();
  return 0;
}

int call_where(PyObject* callable, const NativeCall& call, PyObject** result) {
  constexpr std::size_t kCount = 3;
  const auto changes = [](PyObject* object) { return is_size_number(object) || is_traced_number(object); };
  const auto is_number = [&](PyObject* object) {
    return changes(object) || PyLong_CheckExact(object) || PyFloat_CheckExact(object);
  };
  const bool is_where = name_of(callable) == "where" && call.self == nullptr && call.count == kCount &&
                        total(call) == kCount && is_traced_tensor(call.arguments[0]);
  if (!is_where || !std::all_of(call.arguments + 1, call.arguments + kCount, is_number)) return 0;
  if (std::none_of(call.arguments + 1, call.arguments + kCount, changes)) return 0;
  std::vector<py::Ref> arguments{py::Ref::share(call.arguments[0])};
  for (std::size_t i = 1; i < kCount; ++i) {
    const bool is_size = is_size_number(call.arguments[i]);
    py::Ref number =
        is_size ? py::Ref::steal(traced_number_of_size(call.arguments[i])) : py::Ref::share(call.arguments[i]);
    if (number && is_traced_number(number.get())) number = py::Ref::steal(tensor_like_number(number.get()));
    if (!number) return PyErr_Occurred() != nullptr ? -1 : 0;
    arguments.push_back(std::move(number));
  }
  *result = call_with(callable, call, arguments);
  return *result == nullptr ? -1 : 1;
}

// Eager mixes the statistics of the batch into the running ones as doubles, and does not count that as a write.
int call_batch_norm(PyObject* callable, const NativeCall& call, PyObject** result) {
  constexpr std::size_t kCount = 9, kMean = 3, kVariance = 4, kIsTraining = 5, kMomentum = 6;
  const bool is_known = name_of(callable) == "batch_norm" && call.self == nullptr && call.count == kCount &&
                        total(call) == kCount && call.arguments[kIsTraining] == Py_True &&
                        is_traced_number(call.arguments[kMomentum]) && is_traced_tensor(call.arguments[kMean]) &&
                        is_traced_tensor(call.arguments[kVariance]);
  if (!is_known) return 0;
  const py::Ref held = py::Ref::steal(tensor_of_number(call.arguments[kMomentum]));
  if (!held || !is_tensor(held.get())) return held ? 0 : -1;
  std::vector<py::Ref> arguments;
  for (std::size_t i = 0; i < kCount; ++i) arguments.push_back(py::Ref::share(call.arguments[i]));
  *result = or_python_error([&]() -> PyObject* {
    for (const std::size_t i : {kMean, kVariance}) {
      arguments[i] = py::Ref::steal(wrap_tensor(at::zeros_like(unpack_tensor(call.arguments[i]))));
    }
    arguments[kMomentum] = py::Ref::steal(PyFloat_FromDouble(1.0));
    py::Ref made = py::Ref::steal(call_with(callable, call, arguments));
    const at::Tensor& momentum = unpack_tensor(held.get());
    for (const std::size_t i : {kMean, kVariance}) {
      const at::Tensor& running = unpack_tensor(call.arguments[i]);
      const at::Tensor of_batch = unpack_tensor(arguments[i].get()).to(at::kDouble);
      const std::int64_t version = running.is_inference() ? 0 : running._version();
      if (made) running.copy_(of_batch * momentum + running.to(at::kDouble) * (1 - momentum));
      set_version(running, version);
    }
    return made.release();
  });
  return *result == nullptr ? -1 : 1;
}

}  // namespace thunder::dispatch
