#include "dispatch/capture/data_reads.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/select.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Size.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dispatch/call/thread_state.h"
#include "dispatch/capture/number_uses.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/capture/tensor_facts.h"
#include "dispatch/capture/torch_hooks.h"
#include "dispatch/numbers/number_arguments.h"
#include "dispatch/numbers/number_lists.h"
#include "dispatch/numbers/size_number.h"
#include "dispatch/numbers/size_object.h"
#include "dispatch/numbers/size_origin.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/loop/native_scope.h"
#include "tracer/followed_data.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"

namespace thunder::dispatch {
namespace {

using interpreter::NativeCall;

/// Lists of so many numbers are read one by one; longer ones tie the trace to all of their contents.
constexpr std::int64_t kMostSeparate = 128;

/// Whether the class of a tensor, or `torch.Tensor` itself, was given a conversion in Python.
bool has_own_conversion(PyObject* tensor, PyTypeObject* type) {
  static PyObject* const to_float = PyUnicode_InternFromString("__float__");
  static PyObject* const to_int = PyUnicode_InternFromString("__int__");
  PyObject* method = _PyType_Lookup(Py_TYPE(tensor), type == &PyFloat_Type ? to_float : to_int);
  return method != nullptr && PyFunction_Check(method);
}

/// A function mode is told of `float(tensor)`, and would have to give a number of Python's own.
void refuse_conversion() {
  constexpr const char* kMessage =
      "thunder.jit: float() and int() of a tensor are not supported under a function mode inside; use tensor.item()";
  tracer::note_refusal(kMessage);
  PyErr_SetString(PyExc_NotImplementedError, kMessage);
}

/// A copy of `contents` with the strides of `tensor`, which an array over it shows; undefined where elements of such a
/// copy would share their place in another way than by a stride of zero.
at::Tensor laid_out_as(const at::Tensor& contents, const at::Tensor& tensor) {
  if (contents.strides() == tensor.strides() || contents.sizes() != tensor.sizes()) return contents;
  at::Tensor copy = at::empty_strided(contents.sizes(), tensor.strides(), contents.options());
  at::Tensor target = copy;
  at::Tensor source = contents;
  for (std::int64_t dim = 0; dim < copy.dim(); ++dim) {
    if (copy.stride(dim) != 0 || copy.size(dim) < 2) continue;
    target = target.narrow(dim, 0, 1);
    source = source.narrow(dim, 0, 1);
  }
  if (at::has_internal_overlap(target) != at::MemOverlap::No) return {};
  target.copy_(source);
  return copy;
}

/// Whether a function of PyTorch takes the numbers as such beside tensors: where it does, most take tensors in their
/// place, but many take tensors alone. -1 with an exception.
int takes_numbers(PyObject* callable, const NativeCall& call) {
  const bool has_tensors = is_traced_tensor(call.self) || any_argument(call, is_traced_tensor);
  if (!has_tensors || !any_argument(call, is_traced_number)) return 1;
  const interpreter::NativeScope native;
  auto arguments = replaced(call, is_traced_number, placeholder);
  const py::Ref accepts = arguments ? loaded_function("thunder._arguments", "accepts") : py::Ref();
  if (!accepts) return -1;
  const bool is_unbound = call.self != nullptr && Py_TYPE(callable) == &PyMethodDescr_Type;
  if (is_unbound) arguments->insert(arguments->begin(), py::Ref::share(call.self));
  arguments->insert(arguments->begin(), py::Ref::share(callable));
  NativeCall question = call;
  question.count += is_unbound ? 2 : 1;
  const py::Ref answer = py::Ref::steal(call_with(accepts.get(), question, *arguments));
  return answer ? PyObject_IsTrue(answer.get()) : -1;
}

}  // namespace

void DataReads::add_substitutes(interpreter::TrackerOptions& options) {
  if (const py::Ref function = loaded_function("torch.optim.optimizer", "_get_value")) {
    options.substitute(function.get(),
                       [this](PyObject* const* arguments, std::size_t count, PyObject*, PyObject** result) {
                         if (count != 1 || !is_traced_tensor(arguments[0]) || !is_of_trace(arguments[0])) return 0;
                         *result = item(arguments[0]);
                         return *result == nullptr ? -1 : 1;
                       });
  }
  // Arrays of tensors that share memory are copies, which do not.
  for (const char* name : {"shares_memory", "may_share_memory"}) {
    const py::Ref function = loaded_function("numpy", name);
    if (!function) continue;
    options.substitute(function.get(), [this, name](PyObject* const*, std::size_t, PyObject*, PyObject**) {
      const bool has_arrays =
          trace_->recorder != nullptr && (!trace_->recorder->arrays.is_empty() || !arrays_.is_empty());
      if (!has_arrays) return 0;
      refuse_fact(std::string("numpy.") + name);
      return -1;
    });
  }
  // `numpy.asarray(tensor)` asks for `tensor.numpy()`, and gives that.
  if (const py::Ref function = loaded_function("numpy", "asarray")) {
    options.substitute(function.get(),
                       [this](PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
                         const bool is_plain = count == 1 && names == nullptr && is_traced_tensor(arguments[0]);
                         if (!is_plain || !is_of_trace(arguments[0])) return 0;
                         *result = arrays_.make(arguments[0]);
                         return *result != nullptr ? 1 : PyErr_Occurred() != nullptr ? -1 : 0;
                       });
  }
  // Which would make one tensor of numbers: PyTorch's operations on lists of tensors take a list of them.
  if (const py::Ref function = loaded_function("torch.optim.optimizer", "_stack_if_compiling")) {
    options.substitute(function.get(), [](PyObject* const* arguments, std::size_t count, PyObject*, PyObject** result) {
      if (count != 1 || !is_list_of_numbers(arguments[0])) return 0;
      *result = Py_NewRef(arguments[0]);
      return 1;
    });
  }
}

bool DataReads::is_of_trace(PyObject* tensor) const {
  return tracer::trace_impl(unpack_tensor(tensor))->state()->recorder == trace_->recorder;
}

PyObject* DataReads::item(PyObject* tensor) {
  try {
    if (holds_size(tensor)) return size_in(tensor);
    tracer::Recorder& recorder = *trace_->recorder;
    const bool is_int = has_ints(tensor);
    tracer::Number number;
    ir::ValueId value = ir::kNoValue;
    {
      const std::shared_ptr<void> outside = recorder.host.leave_program();
      if (is_int) value = recorder.value_of(unpack_tensor(tensor));
      if (PyObject* known = ints_.find(value)) return Py_NewRef(known);
      number = tracer::FollowedData(recorder).item(unpack_tensor(tensor));
    }
    PyObject* made = make_traced_number(trace_, number);
    if (made != nullptr && is_traced_number(made) && value != ir::kNoValue) ints_.add(recorder.trace(), value, made);
    return made;
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* DataReads::tensor_of(PyObject* list) {
  const py::Ref function = loaded_function("torch", "tensor");
  PyObject* result = nullptr;
  const NativeCall call = interpreter::native_call({function.get(), &list, 1, nullptr});
  return intercept(function.get(), call, &result) == 0 ? PyObject_CallOneArg(function.get(), list) : result;
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
  if (unpack_tensor(tensor).numel() != 1) {
    PyErr_SetString(PyExc_ValueError, "only one element tensors can be converted to Python scalars");
    return nullptr;
  }
  if (unpack_tensor(tensor).is_complex()) return refuse_fact("Tensor.__float__ of a complex number"), nullptr;
  const py::Ref number = py::Ref::steal(item(tensor));
  if (!number) return nullptr;
  if (is_traced_number(number.get())) return convert_number(number.get(), type);
  if (is_size_number(number.get())) {
    if (const auto made = call_type(type, number.get())) return *made;
  }
  return type == &PyLong_Type ? PyNumber_Long(number.get()) : PyNumber_Float(number.get());
}

/// `tensor.numpy()` and the like, of a copy of what the tensor holds now.
PyObject* DataReads::with_contents(PyObject* callable, const NativeCall& call) {
  if (name_of(callable) != "tolist" && is_conjugate_or_negative(unpack_tensor(call.self))) {
    return refuse_fact("Tensor.numpy"), nullptr;
  }
  at::Tensor contents;
  try {
    tracer::Recorder& recorder = *trace_->recorder;
    const std::shared_ptr<void> outside = recorder.host.leave_program();
    contents = tracer::FollowedData(recorder).contents_of(unpack_tensor(call.self));
  } catch (...) {
    set_python_error();
    return nullptr;
  }
  const interpreter::NativeScope native;
  const tracer::SuspendRecording suspended;
  const std::string name(name_of(callable));
  if (name != "tolist") contents = laid_out_as(contents, unpack_tensor(call.self));
  if (!contents.defined()) return refuse_fact("Tensor." + name + " of elements that share memory"), nullptr;
  const bool requires_grad = unpack_tensor(call.self).requires_grad();  // NumPy's arrays know nothing of it
  const py::Ref real = py::Ref::steal(wrap_tensor(requires_grad ? contents.detach().requires_grad_() : contents));
  if (name != "tolist") trace_->recorder->arrays.add(contents, unpack_tensor(call.self));
  const py::Ref method = py::Ref::steal(real ? PyObject_GetAttrString(real.get(), name.c_str()) : nullptr);
  if (!method) return nullptr;
  std::vector<PyObject*> arguments(call.arguments, call.arguments + total(call));
  return PyObject_Vectorcall(method.get(), arguments.data(), call.count, call.names);
}

std::optional<PyObject*> DataReads::call_type(PyTypeObject* type, PyObject* argument) {
  const bool is_sequence =
      PyList_CheckExact(argument) || PyTuple_CheckExact(argument) || Py_TYPE(argument) == &THPSizeType;
  if (type == &THPSizeType && is_sequence && (has_ints(argument) || holds_traced_numbers(argument))) {
    const py::Ref numbers = py::Ref::steal(with_numbers(argument));
    const py::Ref sizes = py::Ref::steal(numbers ? tuple_of_sizes(numbers.get()) : nullptr);
    if (!sizes) return nullptr;
    const auto made = call_type(type, sizes.get());
    return made ? made : PyObject_CallOneArg(reinterpret_cast<PyObject*>(type), sizes.get());
  }
  if (type == &THPSizeType && is_sequence) {
    PyObject* made = make_shape(argument);
    return made != nullptr || PyErr_Occurred() != nullptr ? std::optional(made) : std::nullopt;
  }
  if (is_size_number(argument)) {
    if (type == &PyType_Type) return PyObject_GetAttrString(argument, "__class__");
    if (type != &PyLong_Type && type != &PyFloat_Type) return std::nullopt;
    const py::Ref plain = py::Ref::steal(size_as(nullptr, argument));
    if (!plain || type == &PyLong_Type) return Py_XNewRef(plain.get());
    PyObject* number = combine_sizes("float", plain.get(), plain.get());
    return number != nullptr || PyErr_Occurred() != nullptr ? std::optional(number) : std::nullopt;
  }
  if (type == &PyType_Type && is_traced_number(argument)) {
    return Py_NewRef(reinterpret_cast<PyObject*>(python_type_of(argument)));
  }
  if (type != &PyFloat_Type && type != &PyLong_Type) return std::nullopt;
  if (is_traced_number(argument)) return convert_number(argument, type);
  if (!is_traced_tensor(argument) || !is_of_trace(argument) || has_own_conversion(argument, type)) return std::nullopt;
  if (has_function_mode()) return refuse_conversion(), nullptr;
  return convert(argument, type);
}

std::optional<PyObject*> DataReads::read(PyObject* callable, const NativeCall& call) {
  const std::string_view name = name_of(callable);
  if (name == "__getstate__") return refuse_fact("Tensor.__getstate__"), nullptr;
  if (name == "item" && total(call) == 0) return item(call.self);
  if (name == "__index__" && total(call) == 0 && holds_int(*trace_->recorder, call.self)) return item(call.self);
  if (name == "tolist" && total(call) == 0 && unpack_tensor(call.self).numel() <= kMostSeparate) {
    return to_list(call.self);
  }
  if (name == "numpy" && total(call) == 0) {
    PyObject* array = arrays_.make(call.self);
    if (array != nullptr || PyErr_Occurred() != nullptr) return array;
  }
  if (name == "tolist" || name == "numpy" || name == "__array__") return with_contents(callable, call);
  return std::nullopt;
}

int DataReads::convert_array(PyObject* callable, const NativeCall& call, PyObject** result) {
  if (arrays_.is_empty() || call.self == nullptr || total(call) != 0) return 0;
  const py::Ref shown = py::Ref::steal(arrays_.tensor_shown_by(call.self));
  if (!shown) return 0;
  const at::Tensor& tensor = unpack_tensor(shown.get());
  const std::string_view name = name_of(callable);
  if (name == "copy") {
    try {
      *result = arrays_.make_copy(tensor);
    } catch (...) {
      set_python_error();
    }
  } else if (name == "item" && tensor.numel() == 1) {
    *result = item(shown.get());
  } else if (name == "tolist" && tensor.numel() <= kMostSeparate) {
    *result = to_list(shown.get());
  }
  return *result != nullptr ? 1 : PyErr_Occurred() != nullptr ? -1 : 0;
}

namespace {

bool any_operand(const NativeCall& call, bool (*predicate)(PyObject*)) {
  return (call.self != nullptr && predicate(call.self)) || any_argument(call, predicate);
}

/// `torch.view_as_real(x.conj())` and `x.conj().imag.view(torch.int32)` raise, where a trace has no bits that say so.
bool is_view_in_other_bits(PyObject* callable, const NativeCall& call) {
  const std::string_view name = name_of(callable);
  const bool is_view =
      name == "view" && any_argument(call, [](PyObject* argument) { return THPDtype_Check(argument); });
  if (!is_view && name != "view_as_real") return false;
  return any_operand(call, [](PyObject* operand) {
    return is_traced_tensor(operand) && is_conjugate_or_negative(unpack_tensor(operand));
  });
}

/// `Function.apply` in C: it calls `forward`, which is observed, with what it is given.
bool hands_on(const NativeCall& call) {
  static const void* const apply = [] {
    const py::Ref function = loaded_function("torch._C", "_FunctionBase.apply");
    return function ? interpreter::native_identity(function.get()) : nullptr;
  }();
  return apply != nullptr && call.function == apply;
}

/// `numel` of a shape with sizes among its items. Null without an exception: it is something else.
PyObject* product_of_sizes(PyObject* list) {
  if (list == nullptr || !THPSize_Check(list)) return nullptr;
  PyObject* const* items = PySequence_Fast_ITEMS(list);
  const auto is_int = [](PyObject* item) { return is_size_number(item) || PyLong_CheckExact(item); };
  if (!std::all_of(items, items + Py_SIZE(list), is_int) ||
      std::none_of(items, items + Py_SIZE(list), is_size_number)) {
    return nullptr;
  }
  py::Ref product = py::Ref::share(items[0]);
  for (Py_ssize_t i = 1; product && i < Py_SIZE(list); ++i) {
    product = py::Ref::steal(PyNumber_Multiply(product.get(), items[i]));
  }
  return product.release();
}

/// `math.gcd` of a size and a small number, which depends on which of the number's factors divide the size. Null
/// without an exception: it is something else.
PyObject* common_divisor(PyObject* left, PyObject* right) {
  constexpr long kMost = 4096;
  PyObject* size = is_size_number(left) ? left : right;
  PyObject* other = is_size_number(left) ? right : left;
  if (!is_size_number(size) || !PyLong_CheckExact(other)) return nullptr;
  long rest = PyLong_AsLong(other);
  if (rest < 1 || rest > kMost) return PyErr_Clear(), nullptr;
  long divisor = 1;
  for (long prime = 2; rest > 1; ++prime) {
    for (bool divides = true; rest % prime == 0; rest /= prime) {
      if (!divides) continue;
      const py::Ref factor = py::Ref::steal(PyLong_FromLong(divisor * prime));
      const py::Ref remainder = py::Ref::steal(factor ? PyNumber_Remainder(size, factor.get()) : nullptr);
      const int is_rest = remainder ? PyObject_IsTrue(remainder.get()) : -1;
      if (is_rest < 0) return nullptr;
      divides = is_rest == 0;
      if (divides) divisor *= prime;
    }
  }
  return PyLong_FromLong(divisor);
}

}  // namespace

bool DataReads::has_ints(PyObject* argument) const {
  const auto is_int = [this](PyObject* object) {
    return is_tensor(object) && unpack_tensor(object).dim() == 0 && holds_int(*trace_->recorder, object);
  };
  if (!PyList_CheckExact(argument) && !PyTuple_CheckExact(argument)) return is_int(argument);
  PyObject* const* items = PySequence_Fast_ITEMS(argument);
  return std::any_of(items, items + Py_SIZE(argument), is_int);
}

PyObject* DataReads::with_numbers(PyObject* argument) {
  if (!has_ints(argument)) return Py_NewRef(argument);
  if (is_tensor(argument)) return item(argument);
  const py::Ref list = py::Ref::steal(PyList_New(0));
  for (Py_ssize_t i = 0; list && i < Py_SIZE(argument); ++i) {
    const py::Ref number = py::Ref::steal(with_numbers(PySequence_Fast_GET_ITEM(argument, i)));
    if (!number || PyList_Append(list.get(), number.get()) < 0) return nullptr;
  }
  return list && PyTuple_Check(argument) ? PyList_AsTuple(list.get()) : Py_XNewRef(list.get());
}

int DataReads::call_with_ints(PyObject* callable, const NativeCall& call, PyObject** result) {
  std::vector<py::Ref> arguments;
  bool has_any = false;
  for (std::size_t i = 0; i < total(call); ++i) {
    PyObject* argument = call.arguments[i];
    const bool is_read = has_ints(argument) && takes_size_at(callable, call, i) && !takes_tensor_at(callable, call, i);
    arguments.push_back(is_read ? py::Ref::steal(with_numbers(argument)) : py::Ref::share(argument));
    if (!arguments.back()) return -1;
    has_any = has_any || is_read;
  }
  if (!has_any) return 0;
  std::vector<PyObject*> values;
  const int status = intercept(callable, with_arguments(call, arguments, values), result);
  if (status != 0) return status;
  *result = call_with(callable, call, arguments);
  return *result == nullptr ? -1 : 1;
}

int DataReads::intercept(PyObject* callable, const NativeCall& call, PyObject** result) {
  if (trace_->recorder == nullptr || hands_on(call)) return 0;
  const auto give = [&](PyObject* value) {
    *result = value;
    return value == nullptr ? -1 : 1;
  };
  if (PyType_Check(callable) && call.count == 1 && total(call) == 1) {
    if (const auto made = call_type(reinterpret_cast<PyTypeObject*>(callable), call.arguments[0])) return give(*made);
  }
  if (call.count == 1 && total(call) == 1 && is_traced_number(call.arguments[0]) && module_of(callable) == "math") {
    PyObject* made = compute_math(callable, std::string(name_of(callable)).c_str(), call.arguments[0]);
    if (made != nullptr || PyErr_Occurred() != nullptr) return give(made);
  }
  if (call.count == 1 && total(call) == 1 && module_of(callable) == "math") {
    PyObject* argument = call.arguments[0];
    PyObject* made = is_size_number(argument) ? compute_math_of_size(name_of(callable), argument) : nullptr;
    if (made != nullptr || PyErr_Occurred() != nullptr) return give(made);
  }
  if (call.count == 1 && total(call) == 1 && name_of(callable) == "index" && module_of(callable) == "_operator") {
    PyObject* argument = call.arguments[0];
    if (holds_int(*trace_->recorder, argument)) return give(item(argument));
    const bool is_int = is_traced_number(argument) && python_type_of(argument) == &PyLong_Type;
    if (is_int || (is_size_number(argument) && type_of_size(argument) == nullptr)) return give(Py_NewRef(argument));
  }
  if (call.count == 2 && total(call) == 2 && module_of(callable) == "math" && any_argument(call, is_traced_number)) {
    const std::string name(name_of(callable));
    PyObject* made = compute_math(callable, name.c_str(), call.arguments[0], call.arguments[1]);
    if (made != nullptr || PyErr_Occurred() != nullptr) return give(made);
  }
  if (call.count == 2 && total(call) == 2 && name_of(callable) == "gcd" && module_of(callable) == "math") {
    PyObject* made = common_divisor(call.arguments[0], call.arguments[1]);
    if (made != nullptr || PyErr_Occurred() != nullptr) return give(made);
  }
  if (total(call) == 0 && name_of(callable) == "numel") {
    PyObject* made = product_of_sizes(call.self);
    if (made != nullptr || PyErr_Occurred() != nullptr) return give(made);
  }
  const bool is_torch = is_torch_function(callable, call);
  // Who is told of a call gets it as it was written, and then calls the function itself.
  const bool is_told = is_torch && (has_function_mode() || any_operand(call, is_told_of_operations));
  if (is_traced_tensor(call.self) && is_of_trace(call.self) && !is_told) {
    if (const auto made = read(callable, call)) return give(*made);
  }
  if (is_torch && !is_told && is_view_in_other_bits(callable, call)) {
    return refuse_fact(std::string(name_of(callable)) + " of the conjugate or negative"), -1;
  }
  const bool looks = interpreter::effect_of(call) == interpreter::NativeEffect::kOpaque;
  const NumberUse use = is_torch || !looks ? NumberUse::kLooks : use_of_numbers(callable, call);
  if (!is_torch && (!looks || use == NumberUse::kOperators)) return 0;
  if (is_torch && !is_told) {
    if (const int status = call_with_ints(callable, call, result); status != 0) return status;
  }
  if (const int status = call_on_sequences(callable, call, result); status != 0) return status;
  if (is_torch && !is_told) {
    if (const int status = call_for_each(callable, call, result); status != 0) return status;
    if (const int status = call_fused(callable, call, result); status != 0) return status;
    if (const int status = call_batch_norm(callable, call, result); status != 0) return status;
    if (const int status = call_where(callable, call, result); status != 0) return status;
  }
  for (std::size_t i = 0; i < total(call); ++i) {
    const bool is_number = is_traced_number(call.arguments[i]) || is_size_number(call.arguments[i]);
    if (is_number || use == NumberUse::kItems) continue;
    const bool has_sizes =
        is_torch && !is_told && holds_traced_numbers(call.arguments[i]) && takes_size_at(callable, call, i);
    const Inside inside = !is_torch ? Inside::kNumbers : has_sizes ? Inside::kSizes : Inside::kNumbersFromData;
    if (!look_inside(call.arguments[i], inside)) return -1;
  }
  if (is_torch && !is_told && takes_sizes_from_data(callable, call)) return give(call_with_data_sizes(callable, call));
  const int takes = is_torch && !is_told ? takes_numbers(callable, call) : 0;
  if (takes < 0) return -1;
  if (takes == 1) {
    if (const int status = call_with_computed(callable, call, result); status != 0) return status;
  }
  if (is_torch && !is_told && any_argument(call, is_traced_number)) return give(call_with_data_sizes(callable, call));
  if (is_torch) {
    if (const int status = call_with_sizes(callable, call, result); status != 0) return status;
  }
  const auto is_number = [](PyObject* object) { return is_traced_number(object) || is_size_number(object); };
  if (!any_argument(call, is_number)) return 0;
  const auto arguments = replaced(call, is_number, [](PyObject* number) {
    return is_size_number(number) ? look_at_size(number) : look_at(number);
  });
  if (!arguments) return -1;
  return give(is_torch ? call_with(callable, call, *arguments) : call_observed(callable, call, *arguments));
}

}  // namespace thunder::dispatch
