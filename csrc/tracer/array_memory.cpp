#include "tracer/array_memory.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

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
  const SuspendRecording suspended;
  const std::shared_ptr<TraceState>& state = trace_impl(trace_tensor)->state();
  const at::Tensor before = real.detach().clone(at::MemoryFormat::Contiguous);
  arrays_.push_back({real.detach(), before, state, root_of(*state).writes});
}

void ArrayMemory::note_returned(const at::Tensor& trace_tensor) {
  for (Array& array : arrays_) {
    array.is_returned |= &root_of(*array.state) == &root_of(*trace_impl(trace_tensor)->state());
  }
}

void ArrayMemory::require_one_owner(const std::function<bool(const TraceState& root)>& is_input) const {
  const auto outlives = [&](const Array& array) { return array.is_returned || is_input(root_of(*array.state)); };
  for (const Array& array : arrays_) {
    const bool shares = array.is_returned && std::ranges::any_of(arrays_, [&](const Array& other) {
                          return &root_of(*other.state) != &root_of(*array.state) && outlives(other) &&
                                 overlaps(other.real, array.real);
                        });
    if (!shares) continue;
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: returns a tensor that shares memory with another one by way of an array of NumPy, or "
                    "the like; return a copy of it");
  }
}

void ArrayMemory::require_unwritten() const {
  const SuspendRecording suspended;
  for (const Array& array : arrays_) {
    if (root_of(*array.state).writes == array.writes && has_same_bytes(array.real, array.before)) continue;
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: writes to memory that a tensor and an array of NumPy, or the like, share; copy the "
                    "array, or write to it outside");
  }
}

}  // namespace thunder::tracer
