#include "tracer/array_memory.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "tracer/aside_of_layers.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

/// Copies and compares arrays as they are, also inside of `vmap` and of modes, which would get hold of the operations.
class WithoutModes {
  SuspendRecording suspended_;
  AsideOfLayers aside_;
  c10::impl::ExcludeDispatchKeyGuard below_modes_{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

bool has_same_bytes(const at::Tensor& left, const at::Tensor& right) {
  const at::Tensor first = left.contiguous();
  return std::memcmp(first.const_data_ptr(), right.const_data_ptr(), right.nbytes()) == 0;
}

bool overlaps(const at::Tensor& left, const at::Tensor& right) {
  const auto* first = static_cast<const char*>(left.storage().data());
  const auto* second = static_cast<const char*>(right.storage().data());
  return first < second + right.storage().nbytes() && second < first + left.storage().nbytes();
}

}  // namespace

bool has_foreign_memory(const at::Tensor& real) {
  return real.has_storage() && real.device().is_cpu() && !real.storage().unsafeGetStorageImpl()->resizable();
}

at::Tensor as_constant(const at::Tensor& real) {
  if (!has_foreign_memory(real)) return real.detach();
  const auto bytes = static_cast<std::int64_t>(real.storage().nbytes());
  const at::Tensor memory = at::empty({bytes}, at::kByte);
  std::memcpy(memory.mutable_data_ptr(), real.storage().data(), real.storage().nbytes());
  return at::empty({0}, real.options()).set_(memory.storage(), real.storage_offset(), real.sizes(), real.strides());
}

void ArrayMemory::add(const at::Tensor& real, const at::Tensor& trace_tensor) {
  if (!real.device().is_cpu()) return;
  const WithoutModes below;
  const std::shared_ptr<TraceState>& state = trace_impl(trace_tensor)->state();
  const at::Tensor before = real.detach().clone(at::MemoryFormat::Contiguous);
  arrays_.push_back({real.detach(), before, state, root_of(*state).writes});
}

void ArrayMemory::note_returned(const at::Tensor& trace_tensor) {
  for (Array& array : arrays_) {
    array.is_returned |= &root_of(*array.state) == &root_of(*trace_impl(trace_tensor)->state());
  }
}

std::vector<bool> ArrayMemory::connected_to(std::size_t first) const {
  std::vector<bool> found(arrays_.size());
  std::vector<std::size_t> open{first};
  found[first] = true;
  while (!open.empty()) {
    const Array& array = arrays_[open.back()];
    open.pop_back();
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      const bool is_next =
          &root_of(*arrays_[i].state) == &root_of(*array.state) || overlaps(arrays_[i].real, array.real);
      if (found[i] || !is_next) continue;
      found[i] = true;
      open.push_back(i);
    }
  }
  return found;
}

std::vector<at::Tensor> ArrayMemory::returned() const {
  std::vector<at::Tensor> result;
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    if (!arrays_[i].is_returned) continue;
    const std::vector<bool> connected = connected_to(i);
    for (std::size_t other = 0; other < arrays_.size(); ++other) {
      if (connected[other]) result.push_back(arrays_[other].real);
    }
  }
  return result;
}

void ArrayMemory::require_one_owner(const std::function<bool(const TraceState& root)>& is_input) const {
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    if (!arrays_[i].is_returned) continue;
    const TraceState& root = root_of(*arrays_[i].state);
    const std::vector<bool> connected = connected_to(i);
    for (std::size_t other = 0; other < arrays_.size(); ++other) {
      const TraceState& other_root = root_of(*arrays_[other].state);
      const bool shares = connected[other] && &other_root != &root;
      if (!shares || !(arrays_[other].is_returned || is_input(other_root))) continue;
      throw UserError(ErrorKind::kNotImplemented,
                      "thunder.jit: returns a tensor that shares memory with another one by way of an array of NumPy, "
                      "or the like; return a copy of it");
    }
  }
}

void ArrayMemory::require_unwritten() const {
  const WithoutModes below;
  for (const Array& array : arrays_) {
    if (root_of(*array.state).writes == array.writes && has_same_bytes(array.real, array.before)) continue;
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: writes to memory that a tensor and an array of NumPy, or the like, share; copy the "
                    "array, or write to it outside");
  }
}

}  // namespace thunder::tracer
