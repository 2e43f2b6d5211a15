#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "tracer/recorder.h"
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

void Recorder::add_shared_memory(const at::Tensor& real, const at::Tensor& trace_tensor) {
  if (!real.device().is_cpu()) return;
  const SuspendRecording suspended;
  const std::shared_ptr<TraceState>& state = trace_impl(trace_tensor)->state();
  const at::Tensor before = real.detach().clone(at::MemoryFormat::Contiguous);
  shared_memory_.push_back({real.detach(), before, state, root_of(*state).writes});
}

void Recorder::require_memory_of_one() const {
  const auto outlives = [this](const SharedMemory& memory) {
    const TraceState& root = root_of(*memory.state);
    return memory.is_returned || std::ranges::any_of(memories_, [&](const InputMemory& input) {
             return &root_of(*trace_impl(input.root)->state()) == &root;
           });
  };
  for (const SharedMemory& memory : shared_memory_) {
    const bool shares = memory.is_returned && std::ranges::any_of(shared_memory_, [&](const SharedMemory& other) {
                          return &root_of(*other.state) != &root_of(*memory.state) && outlives(other) &&
                                 overlaps(other.real, memory.real);
                        });
    if (!shares) continue;
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: returns a tensor that shares memory with another one by way of an array of NumPy, or "
                    "the like; return a copy of it");
  }
}

void Recorder::require_unwritten_memory() const {
  const SuspendRecording suspended;
  for (const SharedMemory& memory : shared_memory_) {
    if (root_of(*memory.state).writes == memory.writes && has_same_bytes(memory.real, memory.before)) continue;
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: writes to memory that a tensor and an array of NumPy, or the like, share; copy the "
                    "array, or write to it outside");
  }
}

}  // namespace thunder::tracer
