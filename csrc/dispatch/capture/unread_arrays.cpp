#include "dispatch/capture/unread_arrays.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "dispatch/call/thread_state.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/capture/tensor_facts.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/loop/native_scope.h"
#include "tracer/followed_data.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_tensor.h"
#include "transforms/functorch_layer.h"

namespace thunder::dispatch {
namespace {

/// Whether no two elements have one place.
bool has_separate_elements(at::IntArrayRef sizes, at::IntArrayRef strides) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1) dims.emplace_back(strides[i], sizes[i]);
  }
  std::ranges::sort(dims);
  std::int64_t extent = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < extent) return size == 0;
    extent += stride * (size - 1);
  }
  return true;
}

/// Memory that an array like that of `tensor` lies in, without contents; undefined: elements share their place. Nobody
/// asks for sizes here, which would tie a trace for several sizes to them.
at::Tensor memory_like(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const at::IntArrayRef sizes = impl->sizes_default();
  const at::IntArrayRef strides = impl->strides_default();
  if (!has_separate_elements(sizes, strides)) return {};
  return at::empty_strided(sizes, strides, at::TensorOptions(tensor.scalar_type())).zero_();
}

bool is_known_to_numpy(at::ScalarType dtype) {
  return at::isIntegralType(dtype, /*includeBool=*/true) || dtype == at::kFloat || dtype == at::kDouble ||
         dtype == at::kHalf || dtype == at::kComplexFloat || dtype == at::kComplexDouble;
}

/// Whether an array of a tensor is one over its memory, and nothing in between raises or sees it.
bool has_plain_array(PyObject* object) {
  const at::Tensor& tensor = unpack_tensor(object);
  return tensor.device().is_cpu() && !tensor.requires_grad() && is_known_to_numpy(tensor.scalar_type()) &&
         !is_functorch_wrapper(tensor) && !is_conjugate_or_negative(tensor) && !is_told_of_operations(object);
}

}  // namespace

PyObject* UnreadArrays::make(PyObject* tensor) {
  if (!has_plain_array(tensor) || recorder_.tensors.real_constant(unpack_tensor(tensor)).defined()) return nullptr;
  const tracer::SuspendRecording suspended;
  const c10::InferenceMode plain(false);
  at::Tensor memory = memory_like(unpack_tensor(tensor));
  return memory.defined() ? add(py::Ref::share(tensor), std::move(memory), /*is_copy=*/false) : nullptr;
}

PyObject* UnreadArrays::make_copy(const at::Tensor& tensor) {
  py::Ref copy = py::Ref::steal(wrap_tensor(tensor.clone(at::MemoryFormat::Contiguous)));
  if (!copy || !has_plain_array(copy.get())) return nullptr;
  const tracer::SuspendRecording suspended;
  const c10::InferenceMode plain(false);
  at::Tensor memory = memory_like(unpack_tensor(copy.get()));
  return memory.defined() ? add(std::move(copy), std::move(memory), /*is_copy=*/true) : nullptr;
}

PyObject* UnreadArrays::add(py::Ref tensor, at::Tensor memory, bool is_copy) {
  const interpreter::NativeScope native;
  const py::Ref real = py::Ref::steal(wrap_tensor(memory));
  py::Ref array = py::Ref::steal(real ? PyObject_CallMethod(real.get(), "numpy", nullptr) : nullptr);
  if (array && is_copy) {  // an array that owns its memory
    array = py::Ref::steal(PyObject_CallMethod(array.get(), "copy", nullptr));
    const py::Ref over = py::Ref::steal(
        array ? PyObject_CallOneArg(loaded_function("torch", "from_numpy").get(), array.get()) : nullptr);
    if (!over) return nullptr;
    memory = unpack_tensor(over.get());
  }
  if (!array) return nullptr;
  arrays_.push_back({array, std::move(tensor), std::move(memory), is_copy});
  return array.release();
}

std::vector<UnreadArrays::Array>::iterator UnreadArrays::find(PyObject* array) {
  return std::ranges::find(arrays_, array, [](const Array& each) { return each.array.get(); });
}

bool UnreadArrays::look_into(PyObject* object) {
  const auto found = arrays_.empty() ? arrays_.end() : find(object);
  if (found == arrays_.end()) return true;
  const Array read = std::move(*found);
  arrays_.erase(found);
  try {
    const at::Tensor& tensor = unpack_tensor(read.tensor.get());
    at::Tensor contents;
    {
      const std::shared_ptr<void> outside = recorder_.host.leave_program();
      contents = tracer::FollowedData(recorder_).contents_of(tensor);
    }
    const tracer::SuspendRecording suspended;
    at::Tensor(read.memory).copy_(contents);
    if (!read.is_copy) recorder_.arrays.add(read.memory, tensor);
    return true;
  } catch (...) {
    set_python_error();
    return false;
  }
}

PyObject* UnreadArrays::tensor_shown_by(PyObject* array) {
  const auto found = arrays_.empty() ? arrays_.end() : find(array);
  return found == arrays_.end() ? nullptr : Py_NewRef(found->tensor.get());
}

}  // namespace thunder::dispatch
