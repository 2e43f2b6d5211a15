// Ints from data as sizes: each number that others are computed from has a symbol, and those are expressions of it.
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "dispatch/numbers/number_object.h"
#include "dispatch/numbers/size_number.h"
#include "dispatch/numbers/size_origin.h"
#include "dispatch/numbers/traced_number.h"
#include "dispatch/python/python_tensor.h"

namespace thunder::dispatch {
namespace {

/// Symbols of expressions are none of those that sizes have.
constexpr std::uint32_t kFirstSymbol = std::uint32_t{1} << 30U;

bool is_int_from_data(PyObject* object) {
  return is_traced_number(object) && python_type_of(object) == &PyLong_Type && as_traced(object).origin == nullptr;
}

std::int64_t value_of(const TracedNumber& number) { return number.number.value.toLong(); }

/// A number that the trace is tied to is a plain one, unless it is tied to it as a size, which another trace has as a
/// symbol: the programs of both have the same sizes.
std::optional<DataExpression> expression_of(PyObject* object) {
  if (PyLong_CheckExact(object)) {
    const auto number = plain_size(object);
    return number ? std::optional(DataExpression{*number, {}}) : std::nullopt;
  }
  if (!is_int_from_data(object)) return std::nullopt;
  const TracedNumber& number = as_traced(object);
  if (!plain_size(number.real)) return std::nullopt;
  if (number.looked_at && number.size == nullptr) return DataExpression{value_of(number), {}};
  if (number.expression != nullptr) return *number.expression;
  const std::uint32_t symbol = kFirstSymbol + static_cast<std::uint32_t>(number.number.id);
  DataExpression expression{ir::Dim::symbol(symbol, value_of(number)), {}};
  expression.numbers.emplace(symbol, py::Ref::share(object));
  return expression;
}

/// The number as a size of its own, an operation whose result's size follows from data.
PyObject* size_by_number(PyObject* object) {
  const py::Ref number = py::Ref::steal(tensor_of_number(object));
  if (!number || !is_tensor(number.get())) return nullptr;
  return or_python_error([&] {
    static const auto kOperator =
        c10::Dispatcher::singleton().findSchemaOrThrow("thunder::sized_by", "").typed<at::Tensor(const at::Tensor&)>();
    return make_size_number(kOperator.call(unpack_tensor(number.get())).sym_size(0));
  });
}

/// A negative number means something else to PyTorch: programs are traced for either sign.
PyObject* signed_size(PyObject* object) {
  const py::Ref zero = py::Ref::steal(PyLong_FromLong(0));
  const int is_negative = zero ? PyObject_RichCompareBool(object, zero.get(), Py_LT) : -1;
  if (is_negative < 0) return nullptr;
  if (is_negative == 0) return size_by_number(object);
  const py::Ref magnitude = py::Ref::steal(PyNumber_Negative(object));
  if (!magnitude || !is_int_from_data(magnitude.get())) return nullptr;
  const py::Ref size = py::Ref::steal(size_by_number(magnitude.get()));
  return size ? PyNumber_Negative(size.get()) : nullptr;
}

/// Several numbers are an expression if one of them is a size already: the sum of many lengths needs one symbol, not
/// one for each.
bool has_use_for(const DataExpression& expression) {
  return expression.numbers.size() == 1 || std::ranges::any_of(expression.numbers, [](const auto& number) {
           return as_traced(number.second.get()).size != nullptr;
         });
}

/// The expression with sizes in the place of its numbers. Null without an exception: it is too long, or not within
/// what 64 bits hold.
PyObject* size_by_expression(const DataExpression& expression) {
  std::map<std::uint32_t, ir::Dim> dims;
  std::shared_ptr<tracer::SizeScope> scope;
  for (const auto& [symbol, number] : expression.numbers) {
    const py::Ref size = py::Ref::steal(as_size(number.get()));
    if (!size && PyErr_Occurred() != nullptr) return nullptr;
    const auto found = size ? size_of(size.get()) : std::nullopt;
    if (!size && !as_traced(number.get()).looked_at) return nullptr;
    if (found) scope = found->scope;
    dims.emplace(symbol, found ? found->dim : ir::Dim(value_of(as_traced(number.get()))));
  }
  return or_python_error([&]() -> PyObject* {
    const ir::Dim dim = ir::rewrite(expression.dim, [&](const ir::Dim& part) {
      const auto symbol = ir::symbol_of(part);
      const auto found = symbol ? dims.find(*symbol) : dims.end();
      return found == dims.end() ? part : found->second;
    });
    if (dim.is_concrete()) return PyLong_FromLongLong(dim.hint);
    return is_manageable(dim, *scope) ? make_size(scope, dim) : nullptr;
  });
}

void set_size(TracedNumber& number, PyObject* size) {
  // As a plain int it is checked where the tensor is made.
  number.looked_at = size != nullptr && PyLong_CheckExact(size);
  number.size = Py_XNewRef(size);
}

/// A number that is another one and a constant, or the constant less that, has the symbol where it is the first of both
/// to be a size: `n + 10` may be one where `n` is negative. Null without an exception: it is no such number.
PyObject* size_by_shift(PyObject* object) {
  const DataExpression& expression = *as_traced(object).expression;
  const auto& [symbol, number] = *expression.numbers.begin();
  TracedNumber& base = as_traced(number.get());
  if (expression.numbers.size() != 1 || base.size != nullptr || base.looked_at) return nullptr;
  const ir::Dim dim = ir::Dim::symbol(symbol, value_of(base));
  const ir::Dim rest = expression.dim - dim, sum = expression.dim + dim;
  if (!rest.is_concrete() && !sum.is_concrete()) return nullptr;
  py::Ref size = py::Ref::steal(signed_size(object));
  const py::Ref constant = py::Ref::steal(size ? PyLong_FromLongLong((rest.is_concrete() ? rest : sum).hint) : nullptr);
  if (!constant) return nullptr;
  const py::Ref of_base = py::Ref::steal(rest.is_concrete() ? PyNumber_Subtract(size.get(), constant.get())
                                                            : PyNumber_Subtract(constant.get(), size.get()));
  if (!of_base) return nullptr;
  set_size(base, of_base.get());
  return size.release();
}

}  // namespace

void note_expression(std::string_view symbol, PyObject* left, PyObject* right, PyObject* result) {
  if (!is_int_from_data(result)) return;
  const auto first = expression_of(left);
  auto second = first ? expression_of(right) : std::nullopt;
  if (!first || !second) return;
  // Others are divided by zero in other calls.
  if (symbol == "//" && (!second->dim.is_concrete() || second->dim.hint < 1)) return;
  const auto dim =
      symbol == "neg" ? size_by_operation("-", 0, first->dim) : size_by_operation(symbol, first->dim, second->dim);
  const bool is_same = dim && !dim->is_concrete() && dim->hint == value_of(as_traced(result));
  if (!is_same || !is_short(*dim)) return;
  second->numbers.insert(first->numbers.begin(), first->numbers.end());
  as_traced(result).expression = new DataExpression{*dim, std::move(second->numbers)};
}

PyObject* as_size(PyObject* object) {
  TracedNumber& traced = as_traced(object);
  if (traced.size != nullptr) return Py_NewRef(traced.size);
  if (!is_int_from_data(object) || traced.looked_at) return nullptr;
  const bool is_expression = traced.expression != nullptr && has_use_for(*traced.expression);
  py::Ref size = py::Ref::steal(is_expression ? size_by_shift(object) : nullptr);
  if (!size && is_expression && PyErr_Occurred() == nullptr) {
    size = py::Ref::steal(size_by_expression(*traced.expression));
  }
  if (!size && PyErr_Occurred() == nullptr) {
    delete std::exchange(traced.expression, nullptr);
    size = py::Ref::steal(signed_size(object));
  }
  if (PyErr_Occurred() == nullptr) set_size(traced, size.get());
  return size.release();
}

}  // namespace thunder::dispatch
