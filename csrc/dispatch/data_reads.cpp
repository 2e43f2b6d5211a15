#include "dispatch/data_reads.h"

#include <ATen/ops/select.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dispatch/errors.h"
#include "dispatch/python_tensor.h"
#include "dispatch/torch_hooks.h"
#include "interpreter/interpret.h"
#include "tracer/trace_tensor.h"

namespace thunder::dispatch {
namespace {

using interpreter::NativeCall;

/// Lists of so many numbers are read one by one; longer ones tie the trace to all of their contents.
constexpr std::int64_t kMostSeparate = 32;

bool is_traced_tensor(PyObject* object) {
  return object != nullptr && is_tensor(object) && tracer::is_trace_tensor(unpack_tensor(object));
}

/// Of C functions and methods; empty for everything else.
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

bool is_method_of_tensor(PyObject* callable, const NativeCall& call) {
  return call.self != nullptr && is_tensor(call.self) && !name_of(callable).empty();
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

/// Calls with other arguments; `self` of a method that was looked up in its type goes first.
PyObject* call_with(PyObject* callable, const NativeCall& call, const std::vector<py::Ref>& arguments) {
  std::vector<PyObject*> values{nullptr};
  const bool is_unbound = call.self != nullptr && Py_TYPE(callable) == &PyMethodDescr_Type;
  if (is_unbound) values.push_back(call.self);
  for (const py::Ref& argument : arguments) values.push_back(argument.get());
  const std::size_t count = call.count + (is_unbound ? 1 : 0);
  return PyObject_Vectorcall(callable, values.data() + 1, count | PY_VECTORCALL_ARGUMENTS_OFFSET, call.names);
}

template <typename Replace>
std::optional<std::vector<py::Ref>> replaced(const NativeCall& call, Replace&& replace) {
  std::vector<py::Ref> arguments;
  for (std::size_t i = 0; i < total(call); ++i) {
    PyObject* argument = call.arguments[i];
    arguments.push_back(is_traced_number(argument) ? py::Ref::steal(replace(argument)) : py::Ref::share(argument));
    if (!arguments.back()) return std::nullopt;
  }
  return arguments;
}

/// C functions of Python that use numbers by their operators alone.
bool works_by_operators(PyObject* callable) {
  static constexpr std::string_view kNames[] = {"abs", "max", "min", "sum", "sorted", "isinstance"};
  return module_of(callable) == "builtins" && std::ranges::find(kNames, name_of(callable)) != std::end(kNames);
}

/// The position of the number that fills a tensor; -1: the function makes none.
std::ptrdiff_t fill_position(PyObject* callable, const NativeCall& call) {
  const std::string_view name = name_of(callable);
  if (name == "new_full" && is_method_of_tensor(callable, call)) return 1;
  if (!module_of(callable).starts_with("torch")) return -1;
  if (name == "full" || name == "full_like") return 1;
  return name == "tensor" || name == "as_tensor" || name == "scalar_tensor" ? 0 : -1;
}

PyObject* placeholder(PyObject* number) {
  return python_type_of(number) == &PyFloat_Type ? PyFloat_FromDouble(0.0) : PyLong_FromLong(0);
}

/// Operations that multiply an operand by a number which cannot be a tensor.
struct Scaling {
  std::string_view name;
  const char* keyword;
};
constexpr std::array kScalings{Scaling{"add", "alpha"}, Scaling{"sub", "alpha"}, Scaling{"subtract", "alpha"},
                               Scaling{"addcdiv", "value"}, Scaling{"addcmul", "value"}};

/// The position among the keywords of the number that scales an operand; -1: none does.
Py_ssize_t scale_position(PyObject* callable, const NativeCall& call) {
  std::string_view name = name_of(callable);
  if (name.ends_with('_')) name.remove_suffix(1);
  const auto* row = std::ranges::find(kScalings, name, &Scaling::name);
  for (Py_ssize_t i = 0; row != kScalings.end() && call.names != nullptr && i < PyTuple_GET_SIZE(call.names); ++i) {
    if (!is_traced_number(call.arguments[call.count + static_cast<std::size_t>(i)])) continue;
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(call.names, i), row->keyword) == 0) return i;
  }
  return -1;
}

/// The same call with the number multiplied into the operand. Null with an exception.
PyObject* call_scaled(PyObject* callable, const NativeCall& call, Py_ssize_t position) {
  std::vector<py::Ref> arguments;
  for (std::size_t i = 0; i < total(call); ++i) arguments.push_back(py::Ref::share(call.arguments[i]));
  const auto number = arguments.begin() + static_cast<std::ptrdiff_t>(call.count) + position;
  const py::Ref factor = py::Ref::steal(tensor_of_number(number->get()));
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

bool has_true(const NativeCall& call, const char* name) {
  for (Py_ssize_t i = 0; call.names != nullptr && i < PyTuple_GET_SIZE(call.names); ++i) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(call.names, i), name) != 0) continue;
    return call.arguments[call.count + static_cast<std::size_t>(i)] == Py_True;
  }
  return false;
}

}  // namespace

bool DataReads::is_of_trace(PyObject* tensor) const {
  return tracer::trace_impl(unpack_tensor(tensor))->state()->recorder == trace_->recorder;
}

PyObject* DataReads::item(PyObject* tensor) {
  try {
    tracer::Number number;
    {
      tracer::Recorder& recorder = *trace_->recorder;
      const std::shared_ptr<void> outside = recorder.outside_program ? recorder.outside_program() : nullptr;
      number = recorder.item(unpack_tensor(tensor));
    }
    return make_traced_number(trace_, number);
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* DataReads::to_list(PyObject* object) {
  const at::Tensor& tensor = unpack_tensor(object);
  if (tensor.dim() == 0) return item(object);
  py::Ref list = py::Ref::steal(PyList_New(tensor.size(0)));
  for (std::int64_t i = 0; list && i < tensor.size(0); ++i) {
    const py::Ref element = py::Ref::steal(wrap_tensor(at::select(tensor, 0, i)));
    PyObject* part = element ? to_list(element.get()) : nullptr;
    if (part == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), i, part);
  }
  return list.release();
}

PyObject* DataReads::convert(PyObject* tensor, PyTypeObject* type) {
  const py::Ref number = py::Ref::steal(item(tensor));
  if (!number) return nullptr;
  if (is_traced_number(number.get())) return convert_number(number.get(), type);
  return type == &PyLong_Type ? PyNumber_Long(number.get()) : PyNumber_Float(number.get());
}

/// `tensor.numpy()` and the like, of a copy of what the tensor holds now.
PyObject* DataReads::with_contents(PyObject* callable, const NativeCall& call) {
  at::Tensor contents;
  try {
    tracer::Recorder& recorder = *trace_->recorder;
    const std::shared_ptr<void> outside = recorder.outside_program ? recorder.outside_program() : nullptr;
    contents = recorder.contents_of(unpack_tensor(call.self));
  } catch (...) {
    set_python_error();
    return nullptr;
  }
  const interpreter::NativeScope native;
  const tracer::SuspendRecording suspended;
  const py::Ref real = py::Ref::steal(wrap_tensor(contents));
  const std::string name(name_of(callable));
  const py::Ref method = py::Ref::steal(real ? PyObject_GetAttrString(real.get(), name.c_str()) : nullptr);
  if (!method) return nullptr;
  std::vector<PyObject*> arguments(call.arguments, call.arguments + total(call));
  return PyObject_Vectorcall(method.get(), arguments.data(), call.count, call.names);
}

/// Fills a tensor by an operation that takes the number as a tensor.
PyObject* DataReads::full(PyObject* callable, const NativeCall& call, std::size_t position) {
  PyObject* number = call.arguments[position];
  std::vector<py::Ref> arguments;
  for (std::size_t i = 0; i < total(call); ++i) arguments.push_back(py::Ref::share(call.arguments[i]));
  arguments[position] = py::Ref::steal(placeholder(number));
  py::Ref made;
  if (position == 0) {  // torch.tensor(number, …)
    const py::Ref torch = py::Ref::steal(PyImport_ImportModule("torch"));
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
  return value ? PyObject_CallMethod(made.get(), "fill_", "O", value.get()) : nullptr;
}

int DataReads::call_torch(PyObject* callable, const NativeCall& call, PyObject** result) {
  const std::ptrdiff_t filled = fill_position(callable, call);
  if (filled >= 0 && filled < static_cast<std::ptrdiff_t>(call.count) && is_traced_number(call.arguments[filled]) &&
      !has_true(call, "requires_grad")) {
    *result = full(callable, call, static_cast<std::size_t>(filled));
    return *result == nullptr ? -1 : 1;
  }
  if (filled >= 0 || !(is_traced_tensor(call.self) || any_argument(call, is_traced_tensor))) return 0;
  const Py_ssize_t scale = scale_position(callable, call);
  if (scale >= 0 && call.count > (call.self != nullptr ? 0 : 1)) {
    *result = call_scaled(callable, call, scale);
    return *result == nullptr ? -1 : 1;
  }
  const auto arguments = replaced(call, [](PyObject* number) { return tensor_of_number(number); });
  if (!arguments) return -1;
  *result = call_with(callable, call, *arguments);
  if (*result != nullptr) return 1;
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) return -1;
  PyErr_Clear();  // takes no tensor there
  return 0;
}

std::optional<PyObject*> DataReads::call_type(PyTypeObject* type, PyObject* argument) {
  if (type == &PyType_Type && is_traced_number(argument)) {
    return Py_NewRef(reinterpret_cast<PyObject*>(python_type_of(argument)));
  }
  if (type != &PyFloat_Type && type != &PyLong_Type) return std::nullopt;
  if (is_traced_number(argument)) return convert_number(argument, type);
  if (is_traced_tensor(argument) && is_of_trace(argument)) return convert(argument, type);
  return std::nullopt;
}

std::optional<PyObject*> DataReads::read(PyObject* callable, const NativeCall& call) {
  const std::string_view name = name_of(callable);
  if (name == "item" && total(call) == 0) return item(call.self);
  if (name == "tolist" && total(call) == 0 && unpack_tensor(call.self).numel() <= kMostSeparate) {
    return to_list(call.self);
  }
  if (name == "tolist" || name == "numpy" || name == "__array__") return with_contents(callable, call);
  return std::nullopt;
}

int DataReads::intercept(PyObject* callable, const NativeCall& call, PyObject** result) {
  if (trace_->recorder == nullptr) return 0;
  const auto give = [&](PyObject* value) {
    *result = value;
    return value == nullptr ? -1 : 1;
  };
  if (PyType_Check(callable) && call.count == 1 && total(call) == 1) {
    if (const auto made = call_type(reinterpret_cast<PyTypeObject*>(callable), call.arguments[0])) return give(*made);
  }
  if (is_traced_tensor(call.self) && is_of_trace(call.self)) {
    if (const auto made = read(callable, call)) return give(*made);
  }
  const bool is_torch = is_torch_function(callable, call);
  const bool looks = interpreter::effect_of(call) == interpreter::NativeEffect::kOpaque;
  if (!is_torch && (!looks || works_by_operators(callable))) return 0;
  for (std::size_t i = 0; i < total(call); ++i) {
    if (!is_traced_number(call.arguments[i]) && !look_inside(call.arguments[i])) return -1;
  }
  if (!any_argument(call, is_traced_number)) return 0;
  if (is_torch) {
    if (const int status = call_torch(callable, call, result); status != 0) return status;
  }
  const auto arguments = replaced(call, [](PyObject* number) { return look_at(number); });
  return give(arguments ? call_with(callable, call, *arguments) : nullptr);
}

}  // namespace thunder::dispatch
