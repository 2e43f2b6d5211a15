#include "bindings/python_values.h"

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "bridge/convert.h"
#include "bridge/number.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/python_tensor.h"
#include "dispatch/python/trace_object.h"
#include "interpreter/python/shared_object.h"
#include "ir/location.h"
#include "tracer/data_dependence.h"

namespace thunder::bindings {
namespace {

using c10::IValue;
using c10::TypeKind;

bool is_default(const c10::Argument& parameter, const IValue& value) {
  if (!parameter.default_value() || value.isTensor() || value.isTensorList() || value.isOptionalTensorList()) {
    return false;
  }
  return *parameter.default_value() == value;
}

/// Not every version of PyTorch has a pybind11 conversion for layouts.
python::object layout_to_python(at::Layout layout) {
  return python::reinterpret_borrow<python::object>(reinterpret_cast<PyObject*>(torch::getTHPLayout(layout)));
}

python::object value_to_python(const IValue& value, const c10::Type& type) {
  if (value.isNone()) return python::none();
  switch (type.kind()) {
    case TypeKind::OptionalType:
      return value_to_python(value, *type.castRaw<c10::OptionalType>()->getElementType());
    case TypeKind::ScalarTypeType:
      return python::cast(value.toScalarType());
    case TypeKind::LayoutType:
      return layout_to_python(value.toLayout());
    case TypeKind::MemoryFormatType:
      return python::cast(value.toMemoryFormat());
    default:
      return torch::jit::toPyObject(value);
  }
}

struct ConstantWriter {
  python::object operator()(ir::None) const { return python::none(); }
  python::object operator()(bool value) const { return python::bool_(value); }
  python::object operator()(std::int64_t value) const { return python::int_(value); }
  python::object operator()(double value) const { return python::float_(value); }
  python::object operator()(std::complex<double> value) const {
    return python::reinterpret_steal<python::object>(PyComplex_FromDoubles(value.real(), value.imag()));
  }
  python::object operator()(const std::string& value) const { return python::str(value); }
  python::object operator()(ir::Dtype value) const { return python::cast(bridge::to_torch(value)); }
  python::object operator()(ir::Device value) const { return python::cast(bridge::to_torch(value)); }
  python::object operator()(ir::Layout value) const { return layout_to_python(bridge::to_torch(value)); }
  python::object operator()(ir::MemoryFormat value) const { return python::cast(bridge::to_torch(value)); }
};

python::object object_to_python(const ir::TraceContext::Object& object) {
  return python::reinterpret_steal<python::object>(dispatch::to_python(object).release());
}

void push_tensors(const python::handle& result, std::vector<at::Tensor>& tensors) {
  if (result.is_none()) {
    tensors.emplace_back();
  } else if (dispatch::is_tensor(result.ptr())) {
    tensors.push_back(dispatch::unpack_tensor(result.ptr()));
  } else if (python::isinstance<python::tuple>(result) || python::isinstance<python::list>(result)) {
    for (const python::handle& element : result) push_tensors(element, tensors);
  } else {
    throw UserError(ErrorKind::kType,
                    std::string("expected tensors, got an object of type '") + Py_TYPE(result.ptr())->tp_name + "'");
  }
}

IValue result_to_value(const python::handle& result, const c10::Type& type) {
  std::vector<at::Tensor> tensors;
  push_tensors(result, tensors);
  if (type.kind() == TypeKind::ListType) return c10::List<at::Tensor>(tensors);
  if (tensors.size() == 1) return tensors[0];
  throw UserError(ErrorKind::kType, "expected one tensor, got " + std::to_string(tensors.size()));
}

bool is_number(const ir::Argument& argument) {
  return argument.is<bool>() || argument.is<std::int64_t>() || argument.is<double>() ||
         argument.is<std::complex<double>>();
}

constexpr std::array kPlainExceptions{&PyExc_RuntimeError, &PyExc_NotImplementedError, &PyExc_TypeError,
                                      &PyExc_ValueError,   &PyExc_IndexError,          &PyExc_AssertionError,
                                      &PyExc_KeyError,     &PyExc_ZeroDivisionError,   &PyExc_AttributeError};

}  // namespace

std::shared_ptr<void> share(const python::object& object) { return interpreter::share_object(object.ptr()); }

python::handle function_in(const std::shared_ptr<const void>& owner) {
  return static_cast<PyObject*>(const_cast<void*>(owner.get()));
}

namespace {

/// A call with the arguments that are not at their defaults at the end: `count` of them, of which the call gives
/// those for which `is_keyword` is true by name.
template <typename IsKeyword, typename IsDefault, typename Name, typename Show>
PythonCall make_call(std::size_t given, const IsKeyword& is_keyword, const IsDefault& is_default, const Name& name,
                     const Show& show) {
  std::size_t count = given;
  while (count > 0 && (is_keyword(count - 1) || is_default(count - 1))) --count;
  PythonCall call{python::tuple(count), python::dict()};
  for (std::size_t i = 0; i < count; ++i) call.positional[i] = show(i);
  for (std::size_t i = count; i < given; ++i) {
    if (is_keyword(i) && !is_default(i)) call.keywords[name(i).c_str()] = show(i);
  }
  return call;
}

}  // namespace

PythonCall call_of(const ir::BoundSymbol& symbol, const ir::Trace& trace, const ShowValue& show, NumberForm form) {
  const auto& parameters = symbol.op->parameters;
  const auto equals_default = [&](std::size_t i) {
    return i < parameters.size() && parameters[i].default_value &&
           identical(*parameters[i].default_value, symbol.arguments[i]);
  };
  const auto is_keyword = [&](std::size_t i) { return i < parameters.size() && parameters[i].keyword_only; };
  const auto show_argument = [&](std::size_t i) {
    const bool takes_tensor = i < parameters.size() && parameters[i].type.starts_with("Tensor");
    if (form == NumberForm::kTensor && takes_tensor && is_number(symbol.arguments[i])) {
      return python::cast(bridge::wrap_number(tracer::scalar_of(symbol.arguments[i])));
    }
    return to_python(symbol.arguments[i], trace, show);
  };
  const auto name = [&](std::size_t i) { return parameters[i].name; };
  return make_call(symbol.arguments.size(), is_keyword, equals_default, name, show_argument);
}

PythonCall call_of(const c10::OperatorHandle& op, std::span<const IValue> arguments, NumberForm form) {
  const auto& parameters = op.schema().arguments();
  const auto show = [&](std::size_t i) {
    // PyTorch's own conversion gives a number for a tensor that stands for one.
    if (form == NumberForm::kTensor && arguments[i].isTensor()) return python::cast(arguments[i].toTensor());
    return value_to_python(arguments[i], *parameters[i].real_type());
  };
  return make_call(
      arguments.size(), [&](std::size_t i) { return parameters[i].kwarg_only(); },
      [&](std::size_t i) { return is_default(parameters[i], arguments[i]); },
      [&](std::size_t i) { return parameters[i].name(); }, show);
}

python::object to_python(const ir::Argument& argument, const ir::Trace& trace, const ShowValue& show) {
  if (const auto* id = argument.get<ir::ValueId>()) return show(*id);
  if (const auto* object = argument.get<ir::ObjectConstant>()) {
    return object_to_python(trace.context()->objects.at(object->index));
  }
  if (const auto* list = argument.get<ir::ArgumentList>()) {
    python::list elements;
    for (const ir::Argument& element : *list) elements.append(to_python(element, trace, show));
    return elements;
  }
  return std::visit(
      [](const auto& constant) -> python::object {
        if constexpr (requires { ConstantWriter{}(constant); }) {
          return ConstantWriter{}(constant);
        } else {
          return python::none();
        }
      },
      argument.content);
}

std::vector<at::Tensor> tensors_in(const python::object& result) {
  std::vector<at::Tensor> tensors;
  push_tensors(result, tensors);
  return tensors;
}

void push_results(const c10::OperatorHandle* op, const python::object& result, std::vector<IValue>& stack) {
  if (op == nullptr) {
    stack.emplace_back(c10::List<at::Tensor>(tensors_in(result)));
    return;
  }
  const auto& returns = op->schema().returns();
  if (returns.size() == 1) {
    stack.push_back(result_to_value(result, *returns[0].real_type()));
    return;
  }
  const bool is_sequence = python::isinstance<python::tuple>(result) || python::isinstance<python::list>(result);
  if (!is_sequence || python::len(result) != returns.size()) {
    throw UserError(ErrorKind::kType,
                    "expected " + std::to_string(returns.size()) + " results, got " +
                        (is_sequence ? std::to_string(python::len(result))
                                     : std::string("an object of type '") + Py_TYPE(result.ptr())->tp_name + "'"));
  }
  std::size_t i = 0;
  for (const python::handle& element : result) stack.push_back(result_to_value(element, *returns[i++].real_type()));
}

void add_context(const std::string& context) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const auto exception = python::reinterpret_borrow<python::object>(value);
  const bool is_plain = std::ranges::any_of(kPlainExceptions, [&](PyObject* const* known) { return *known == type; });
  try {
    if (is_plain) {
      exception.attr("args") = python::make_tuple(python::str(exception).cast<std::string>() + context);
    } else if (python::hasattr(exception, "add_note")) {
      exception.attr("add_note")(context.substr(context.find_first_not_of("\n ")));
    }
  } catch (python::error_already_set&) {
    // The message stays as it was.
  }
  PyErr_Restore(type, value, traceback);
}

void throw_pending() { throw dispatch::PendingError(); }

std::string describe_location(const ir::SourceLocation& location) {
  return ir::describe_line(location, "\n  called in ");
}

}  // namespace thunder::bindings
