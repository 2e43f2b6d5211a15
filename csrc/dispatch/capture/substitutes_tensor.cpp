#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/stack.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "dispatch/call/output_plan.h"
#include "dispatch/call/thread_state.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/numbers/number_arguments.h"
#include "dispatch/python/python_tensor.h"
#include "tracer/evaluate.h"
#include "tracer/recorder.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"
#include "tracer/views.h"

namespace thunder::dispatch {
namespace {

py::Ref torch_function(const char* name) {
  const py::Ref module = checked(py::import_module("torch"));
  return checked(PyObject_GetAttrString(module.get(), name));
}

/// `thunder._copying` in place of a method in C, run by the interpreter.
py::Ref call_copier(const char* name, const SubstitutedCall& call) {
  const py::Ref copier = checked(loaded_function("thunder._copying", name).release());
  return checked(PyObject_Vectorcall(copier.get(), call.arguments, call.count, call.names));
}

py::Ref new_tensor(const SubstitutedCall& call) { return call_copier("new_tensor", call); }

bool are_numbers(const SubstitutedCall& call) {
  for (std::size_t i = 1; i < call.count; ++i) {
    if (!PyLong_Check(call.arguments[i])) return false;
  }
  return true;
}

/// The legacy `tensor.new(*sizes)` and `tensor.new(data)`.
py::Ref new_by_sizes_or_data(const SubstitutedCall& call) {
  const bool is_size =
      call.count == 2 && Py_TYPE(call.arguments[1]) == reinterpret_cast<PyTypeObject*>(torch_function("Size").get());
  if (call.count == 2 && !is_size && !PyLong_Check(call.arguments[1])) return call_copier("new_tensor", call);
  if (!is_size && !are_numbers(call)) {
    PyErr_SetString(PyExc_TypeError, "Tensor.new: expected sizes or data");
    throw PendingError();
  }
  py::Ref sizes = py::Ref::share(is_size ? call.arguments[1] : nullptr);
  if (!sizes && call.count == 1) sizes = checked(Py_BuildValue("(i)", 0));
  if (!sizes) {
    sizes = checked(PyTuple_New(static_cast<Py_ssize_t>(call.count - 1)));
    for (std::size_t i = 1; i < call.count; ++i) {
      PyTuple_SET_ITEM(sizes.get(), static_cast<Py_ssize_t>(i - 1), Py_NewRef(call.arguments[i]));
    }
  }
  return checked(PyObject_CallMethod(call.arguments[0], "new_empty", "(O)", sizes.get()));
}

/// The tensor whose memory `tensor`, of the trace, is a view of.
at::Tensor memory_of(at::Tensor tensor) {
  while (const auto& view = tracer::trace_impl(tensor)->state()->view) tensor = at::Tensor(view->parent);
  return tensor;
}

/// Inputs may lie in one storage without being views of one tensor of the trace: copies of them would not.
void require_one_memory(PyObject* copies, const at::Tensor& memory, PyObject* key) {
  const at::Tensor real = tracer::recorder_on_top()->tensors.real_behind(memory);
  if (!real.defined() || !real.has_storage()) return;
  const py::Ref storage = checked(PyLong_FromVoidPtr(real.storage().unsafeGetStorageImpl()));
  PyObject* known = PyDict_SetDefault(copies, storage.get(), key);
  if (known == nullptr) throw PendingError();
  if (PyObject_RichCompareBool(known, key, Py_EQ) == 1) return;
  PyErr_SetString(
      PyExc_NotImplementedError,
      "thunder.jit: copies of inputs that share memory are not supported inside; copy them before the call");
  throw PendingError();
}

/// `copy_memory(tensor, copies)`: a copy of the memory that a tensor of the trace lies in, once for the dict `copies`,
/// seen as the tensor sees its own.
py::Ref copy_memory(const SubstitutedCall& call) {
  const at::Tensor& tensor = unpack_tensor(call.arguments[0]);
  PyObject* copies = call.arguments[1];
  const at::Tensor memory = memory_of(tensor);
  if (!memory.is_non_overlapping_and_dense() || memory.scalar_type() != tensor.scalar_type()) {
    PyErr_SetString(PyExc_NotImplementedError,
                    "thunder.jit: a copy of a tensor that has gaps, or shows memory as another dtype, is not supported "
                    "inside; use tensor.clone()");
    throw PendingError();
  }
  const py::Ref key = checked(PyLong_FromVoidPtr(memory.unsafeGetTensorImpl()));
  require_one_memory(copies, memory, key.get());
  PyObject* known = PyDict_GetItemWithError(copies, key.get());
  at::Tensor copy = known != nullptr ? unpack_tensor(known) : at::clone(memory.detach(), at::MemoryFormat::Preserve);
  // Eager sets the copy to its memory, which counts as a write.
  if (known == nullptr && !copy.is_inference()) copy.unsafeGetTensorImpl()->bump_version();
  const py::Ref kept = checked(wrap_tensor(copy));
  if (PyDict_SetItem(copies, key.get(), kept.get()) < 0) throw PendingError();
  const bool is_all = tracer::is_laid_out_alike(tensor, memory);
  if (is_all && known == nullptr) return py::Ref::share(kept.get());
  return checked(wrap_tensor(is_all ? copy.detach()
                                    : at::as_strided(copy, tensor.sizes(), tensor.strides(),
                                                     tensor.storage_offset() - memory.storage_offset())));
}

/// `alias_memory(tensor)`: another tensor over its memory, with a version counter of its own. Eager sets it to that
/// memory, which counts as a write.
py::Ref alias_memory(const SubstitutedCall& call) {
  const at::Tensor alias = unpack_tensor(call.arguments[0]).variable_data();
  if (!alias.is_inference()) alias.unsafeGetTensorImpl()->bump_version();
  return checked(wrap_tensor(alias));
}

template <py::Ref (*handler)(const SubstitutedCall& call)>
int run(PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
  if (count == 0 || is_told_of_operations(arguments[0])) return 0;
  try {
    *result = handler({arguments, count, names}).release();
    return 1;
  } catch (const PendingError&) {
    return -1;
  } catch (...) {
    set_python_error();
    return -1;
  }
}

/// Whether PyTorch asks the class of a tensor, when one of its methods is called.
bool is_overridden(PyObject* tensor) {
  using at::impl::PythonTorchFunctionTLS;
  static const py::Ref disabled = loaded_function("torch", "_C._disabled_torch_function_impl");
  PyTypeObject* type = Py_TYPE(tensor);
  if (PythonTorchFunctionTLS::get_disabled_state() != at::impl::TorchFunctionDisabledState::ENABLED) return false;
  if (type == reinterpret_cast<PyTypeObject*>(plain_tensor_type())) return false;
  const py::Ref function =
      py::Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__torch_function__"));
  PyErr_Clear();
  return function && function.get() != disabled.get();
}

/// Runs the handler of a method that makes a tensor, unless the tensor's class has its own (`__torch_function__`).
template <py::Ref (*handler)(const SubstitutedCall& call)>
int run_method(PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
  return count != 0 && is_overridden(arguments[0]) ? 0 : run<handler>(arguments, count, names, result);
}

/// `tensor.is_conj()` and `is_neg()`: whether it shows the conjugate or negative of an input's memory, or the negative
/// of a real result of a kernel, which is none itself. Refuses complex results of kernels, for which this is unknown.
template <bool is_conjugate>
py::Ref shows_by_bit(const SubstitutedCall& call) {
  const at::Tensor& tensor = unpack_tensor(call.arguments[0]);
  if (is_conjugate && !tensor.is_complex()) return py::Ref::share(Py_False);
  const tracer::LazyView view = tracer::lazy_view(tensor);
  const at::Tensor real = tracer::recorder_on_top()->tensors.real_behind(view.root);
  if (!is_conjugate && !real.defined() && !view.root.is_complex()) {
    return py::Ref::share(view.negatives % 2 == 1 ? Py_True : Py_False);
  }
  if (!real.defined() || (!is_conjugate && view.is_part_of_conjugate(real.is_conj()))) {
    PyErr_SetString(PyExc_NotImplementedError,
                    "thunder.jit: is_conj() and is_neg() are known of inputs and their views only inside; ask outside");
    throw PendingError();
  }
  const bool is_odd = (is_conjugate ? view.conjugates : view.negatives) % 2 == 1;
  return py::Ref::share(is_odd != (is_conjugate ? real.is_conj() : real.is_neg()) ? Py_True : Py_False);
}

/// One tensor of sequences whose lengths are symbols, by operations for which the longest one is an expression.
at::Tensor padded_to_longest(const std::vector<at::Tensor>& sequences, bool is_batch_first, double padding,
                             bool is_left) {
  c10::SymInt longest = sequences[0].sym_size(0);
  for (const at::Tensor& sequence : sequences) longest = longest.max(sequence.sym_size(0));
  std::vector<at::Tensor> padded;
  for (const at::Tensor& sequence : sequences) {
    std::vector<c10::SymInt> added(2 * static_cast<std::size_t>(sequence.dim()), 0);
    added[added.size() - (is_left ? 2 : 1)] = longest - sequence.sym_size(0);
    padded.push_back(at::constant_pad_nd_symint(sequence, added, padding));
  }
  return at::stack(padded, is_batch_first ? 0 : 1);
}

bool differ_in_length_alone(const at::Tensor& left, const at::Tensor& right) {
  if (left.dim() == 0 || left.dim() != right.dim() || left.scalar_type() != right.scalar_type()) return false;
  bool is_alike = left.device() == right.device();
  for (std::int64_t i = 1; i < left.dim(); ++i) is_alike = is_alike && left.sym_size(i) == right.sym_size(i);
  return is_alike;
}

/// `torch._C._nn.pad_sequence(sequences, batch_first, padding_value, padding_side)`, which fills a tensor of its own.
int pad_sequences(PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
  constexpr std::size_t kCount = 4;
  const bool has_symbols = tracer::TraceSession::current().size_reads != nullptr;
  const bool is_known =
      count == kCount && names == nullptr && (PyTuple_CheckExact(arguments[0]) || PyList_CheckExact(arguments[0])) &&
      PyBool_Check(arguments[1]) && (PyFloat_CheckExact(arguments[2]) || PyLong_CheckExact(arguments[2])) &&
      PyUnicode_CheckExact(arguments[3]);
  if (!has_symbols || !is_known) return 0;
  std::vector<at::Tensor> sequences;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(arguments[0]); ++i) {
    PyObject* sequence = PySequence_Fast_GET_ITEM(arguments[0], i);
    if (!is_traced_tensor(sequence) || is_told_of_operations(sequence)) return 0;
    sequences.push_back(unpack_tensor(sequence));
    if (!differ_in_length_alone(sequences.front(), sequences.back())) return 0;
  }
  if (sequences.size() < 2) return 0;
  try {
    const bool is_left = PyUnicode_CompareWithASCIIString(arguments[3], "left") == 0;
    *result =
        wrap_tensor(padded_to_longest(sequences, arguments[1] == Py_True, PyFloat_AsDouble(arguments[2]), is_left));
  } catch (...) {
    set_python_error();
  }
  return *result == nullptr ? -1 : 1;
}

template <py::Ref (*handler)(const SubstitutedCall& call)>
void substitute_for_trace_tensors(interpreter::TrackerOptions& options, const char* path) {
  const py::Ref function = loaded_function("torch", path);
  if (!function) return;
  options.substitute(function.get(),
                     [](PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
                       const bool is_of_trace = count == 1 && is_traced_tensor(arguments[0]);
                       return is_of_trace ? run<handler>(arguments, count, names, result) : 0;
                     });
}

/// Has `thunder._copying` copy a tensor of the trace, in place of a function that reads its memory.
void copy_in_python(interpreter::TrackerOptions& options, const char* module, const char* path, const char* name) {
  const py::Ref function = loaded_function(module, path);
  if (!function) return;
  options.substitute(function.get(),
                     [name](PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
                       if (count == 0 || !is_traced_tensor(arguments[0]) || is_told_of_operations(arguments[0]))
                         return 0;
                       const py::Ref copier = loaded_function("thunder._copying", name);
                       *result = copier ? PyObject_Vectorcall(copier.get(), arguments, count, names) : nullptr;
                       return *result != nullptr ? 1 : PyErr_Occurred() != nullptr ? -1 : 0;
                     });
}

}  // namespace

void add_tensor_substitutes(interpreter::TrackerOptions& options) {
  if (const py::Ref method = loaded_function("torch", "Tensor.new_tensor")) {
    options.substitute(method.get(), run_method<&new_tensor>);
  }
  if (const py::Ref method = loaded_function("torch", "Tensor.new")) {
    options.substitute(method.get(), run_method<&new_by_sizes_or_data>);
  }
  if (const py::Ref function = loaded_function("torch", "_C._nn.pad_sequence")) {
    options.substitute(function.get(), &pad_sequences);
  }
  substitute_for_trace_tensors<&shows_by_bit<true>>(options, "Tensor.is_conj");
  substitute_for_trace_tensors<&shows_by_bit<true>>(options, "is_conj");
  substitute_for_trace_tensors<&shows_by_bit<false>>(options, "Tensor.is_neg");
  substitute_for_trace_tensors<&shows_by_bit<false>>(options, "is_neg");
  copy_in_python(options, "torch", "Tensor.__deepcopy__", "deepcopy_tensor");
  copy_in_python(options, "copy", "copy", "copy_tensor");
  if (const py::Ref function = loaded_function("thunder._copying", "copy_memory")) {
    options.substitute(function.get(), run<&copy_memory>);
  }
  if (const py::Ref function = loaded_function("thunder._copying", "alias_memory")) {
    options.substitute(function.get(), run<&alias_memory>);
  }
}

}  // namespace thunder::dispatch
