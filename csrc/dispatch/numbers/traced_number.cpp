#include "dispatch/numbers/traced_number.h"

#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "bridge/number.h"
#include "dispatch/numbers/number_object.h"
#include "dispatch/numbers/size_object.h"
#include "dispatch/numbers/size_origin.h"
#include "dispatch/python/python_tensor.h"
#include "tracer/followed_data.h"

namespace thunder::dispatch {
namespace {

py::Ref to_python(const c10::Scalar& number) {
  if (number.isFloatingPoint()) return py::Ref::steal(PyFloat_FromDouble(number.toDouble()));
  return py::Ref::steal(PyLong_FromLongLong(number.toLong()));
}

/// `math.isnan(number)` and its like, to whose outcome the trace is tied. Null: another function, or an exception is
/// set.
PyObject* decide_math(std::string_view name, PyObject* traced) {
  if (name == "isnan") return PyObject_RichCompare(traced, traced, Py_NE);
  if (name != "isinf" && name != "isfinite") return nullptr;
  const py::Ref infinity = py::Ref::steal(PyFloat_FromDouble(std::numeric_limits<double>::infinity()));
  const py::Ref magnitude = py::Ref::steal(infinity ? PyNumber_Absolute(traced) : nullptr);
  return magnitude ? PyObject_RichCompare(magnitude.get(), infinity.get(), name == "isinf" ? Py_EQ : Py_LT) : nullptr;
}

}  // namespace

PyObject* make_number(const std::shared_ptr<NumberTrace>& trace, const tracer::Number& number, py::Ref real,
                      std::unique_ptr<SizeOrigin> origin) {
  PyTypeObject& type = number.value.isFloatingPoint() ? traced_float_type : traced_int_type;
  PyObject* object = real ? type.tp_alloc(&type, 0) : nullptr;
  if (object == nullptr) return nullptr;
  TracedNumber& traced = as_traced(object);
  traced.real = real.release();
  traced.trace = new std::shared_ptr<NumberTrace>(trace);
  new (&traced.number) tracer::Number(number);
  traced.looked_at = false;
  traced.origin = origin.release();
  traced.size = nullptr;
  traced.expression = nullptr;
  return object;
}

std::optional<tracer::NumberOperand> operand_of(PyObject* object) {
  if (is_traced_number(object)) {
    const TracedNumber& traced = as_traced(object);
    if (traced.looked_at) return traced.number.value;
    return traced.number;
  }
  if (PyFloat_CheckExact(object)) return c10::Scalar(PyFloat_AS_DOUBLE(object));
  if (!PyLong_CheckExact(object)) return std::nullopt;
  const long long number = PyLong_AsLongLong(object);
  if (number == -1 && PyErr_Occurred() != nullptr) return PyErr_Clear(), std::nullopt;
  return c10::Scalar(static_cast<std::int64_t>(number));
}

const TracedNumber& untied_of(PyObject* left, PyObject* right) {
  return as_traced(is_traced_number(left) && !as_traced(left).looked_at ? left
                   : is_traced_number(right)                            ? right
                                                                        : left);
}

namespace {

/// Whether the trace is tied to a number as to a size alone: as a symbol in another trace, what is computed of it is an
/// expression there, and has to be one here, so that the sizes of both follow from the same numbers.
bool is_tied_as_size(PyObject* object) {
  return is_traced_number(object) && as_traced(object).looked_at && as_traced(object).size != nullptr;
}

std::optional<tracer::NumberOperand> recorded_operand(PyObject* object) {
  return is_tied_as_size(object) ? as_traced(object).number : operand_of(object);
}

}  // namespace

PyObject* record_number(const char* symbol, PyObject* left, PyObject* right, py::Borrowed real) {
  const auto first = recorded_operand(left);
  const auto second = recorded_operand(right);
  if (symbol == nullptr || !first || !second || !(PyFloat_CheckExact(real) || PyLong_CheckExact(real))) return nullptr;
  const auto is_from_data = [](PyObject* object) { return is_traced_number(object) && !is_from_sizes(object); };
  const bool is_of_sizes = is_from_sizes(left) || is_from_sizes(right);
  if (is_of_sizes && !is_from_data(left) && !is_from_data(right)) {
    return record_of_sizes(symbol, left, right, py::Ref::share(real));
  }
  const TracedNumber& traced = untied_of(left, right);
  if (traced.looked_at && !is_tied_as_size(left) && !is_tied_as_size(right)) return Py_NewRef(real);
  const auto expected = operand_of(real);
  std::optional<tracer::Number> number;
  const auto known = bridge::compute_number(
      symbol, is_traced_number(left) ? as_traced(left).number.value : std::get<c10::Scalar>(*first),
      is_traced_number(right) ? as_traced(right).number.value : std::get<c10::Scalar>(*second));
  if (!expected || !known || !bridge::same_number(*known, std::get<c10::Scalar>(*expected))) return nullptr;
  if (!with_recorder(traced, [&](tracer::Recorder& recorder) {
        number = tracer::FollowedData(recorder).compute(symbol, *first, *second);
      })) {
    return nullptr;
  }
  PyObject* made = number ? make_number(*traced.trace, *number, py::Ref::share(real)) : nullptr;
  if (made != nullptr) note_expression(symbol, left, right, made);
  return made;
}

PyObject* make_traced_number(std::shared_ptr<NumberTrace> trace, const tracer::Number& number) {
  if (number.value.isBoolean() || number.value.isComplex() || trace->are_plain) {
    try {
      tracer::FollowedData(*trace->recorder).observe(number);
    } catch (...) {
      set_python_error();
      return nullptr;
    }
    if (number.value.isBoolean()) return PyBool_FromLong(number.value.toBool() ? 1 : 0);
    if (!number.value.isComplex()) return to_python(number.value).release();
    const auto value = number.value.toComplexDouble();
    return PyComplex_FromDoubles(value.real(), value.imag());
  }
  return make_number(trace, number, to_python(number.value));
}

bool is_traced_number(PyObject* object) {
  return Py_TYPE(object) == &traced_float_type || Py_TYPE(object) == &traced_int_type;
}

ir::ValueId value_of_number(PyObject* traced) { return as_traced(traced).number.id; }

PyTypeObject* python_type_of(PyObject* traced) {
  return Py_TYPE(traced) == &traced_float_type ? &PyFloat_Type : &PyLong_Type;
}

PyObject* tensor_of_number(PyObject* traced) {
  const TracedNumber& number = as_traced(traced);
  if (number.looked_at || (*number.trace)->recorder == nullptr) return Py_NewRef(number.real);
  at::Tensor tensor;
  if (!with_recorder(number, [&](tracer::Recorder& recorder) {
        tensor = tracer::FollowedData(recorder).number_tensor(number.number.id);
      })) {
    return nullptr;
  }
  return wrap_tensor(std::move(tensor));
}

PyObject* tensor_of_number(PyObject* traced, at::ScalarType dtype) {
  const py::Ref tensor = py::Ref::steal(tensor_of_number(traced));
  if (!tensor || !is_tensor(tensor.get())) return Py_XNewRef(tensor.get());
  at::Tensor held;
  if (!with_recorder(as_traced(traced), [&](tracer::Recorder& recorder) {
        held = tracer::FollowedData(recorder).held_number(unpack_tensor(tensor.get()), dtype);
      })) {
    return nullptr;
  }
  if (held.defined()) return wrap_tensor(std::move(held));
  PyErr_SetString(PyExc_NotImplementedError, "thunder.jit: a number that its result cannot hold");
  return nullptr;
}

PyObject* number_without_tie(PyObject* traced) { return Py_NewRef(as_traced(traced).real); }

PyObject* look_at(PyObject* object) {
  TracedNumber& traced = as_traced(object);
  if (!traced.looked_at && traced.origin != nullptr) {
    look_at_origin(*traced.origin);
    traced.looked_at = true;
  } else if (!traced.looked_at) {
    if (!with_recorder(traced,
                       [&](tracer::Recorder& recorder) { tracer::FollowedData(recorder).observe(traced.number); }))
      return nullptr;
    traced.looked_at = true;
  }
  return Py_NewRef(traced.real);
}

PyObject* size_or_number(PyObject* traced) {
  PyObject* size = as_size(traced);
  return size != nullptr || PyErr_Occurred() != nullptr ? size : look_at(traced);
}

PyObject* convert_number(PyObject* traced, PyTypeObject* type) {
  if (python_type_of(traced) == type) return Py_NewRef(traced);
  PyObject* size = type == &PyLong_Type ? round_to_size("int", traced) : nullptr;
  if (size != nullptr || PyErr_Occurred() != nullptr) return size;
  const bool to_int = type == &PyLong_Type;
  const unaryfunc convert = to_int ? PyNumber_Long : PyNumber_Float;
  const py::Ref real = py::Ref::steal(convert(as_traced(traced).real));
  PyObject* recorded = real ? record_number(to_int ? "int" : "float", traced, traced, real.get()) : nullptr;
  if (recorded != nullptr) return recorded;
  PyErr_Clear();
  const py::Ref looked_at = py::Ref::steal(look_at(traced));
  return looked_at ? convert(looked_at.get()) : nullptr;
}

PyObject* compute_math(PyObject* function, const char* name, PyObject* traced) {
  PyObject* size = round_to_size(name, traced);
  if (size != nullptr || PyErr_Occurred() != nullptr) return size;
  PyObject* outcome = decide_math(name, traced);
  if (outcome != nullptr || PyErr_Occurred() != nullptr) return outcome;
  const py::Ref real = py::Ref::steal(PyObject_CallOneArg(function, as_traced(traced).real));
  if (!real) return PyErr_Clear(), nullptr;
  return record_number(name, traced, traced, real.get());
}

PyObject* compute_math(PyObject* function, const char* name, PyObject* left, PyObject* right) {
  const auto real_of = [](PyObject* object) {
    return py::Ref::steal(is_traced_number(object) ? number_without_tie(object) : Py_NewRef(object));
  };
  if (std::string_view(name) == "log") {  // the quotient of two, as Python has it
    const auto log_of = [&](PyObject* object) {
      return py::Ref::steal(is_traced_number(object) ? compute_math(function, name, object)
                                                     : PyObject_CallOneArg(function, object));
    };
    const py::Ref numerator = log_of(left);
    const py::Ref denominator = numerator ? log_of(right) : nullptr;
    return denominator ? PyNumber_TrueDivide(numerator.get(), denominator.get()) : nullptr;
  }
  const py::Ref real =
      py::Ref::steal(PyObject_CallFunctionObjArgs(function, real_of(left).get(), real_of(right).get(), nullptr));
  if (!real) return PyErr_Clear(), nullptr;
  return record_number(name, left, right, real.get());
}

}  // namespace thunder::dispatch
