#include <cstring>

#include "base/error.h"
#include "tracer/recorder.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

bool has_same_bytes(const at::Tensor& left, const at::Tensor& right) {
  const at::Tensor first = left.contiguous();
  return std::memcmp(first.const_data_ptr(), right.const_data_ptr(), right.nbytes()) == 0;
}

}  // namespace

void Recorder::add_shared_memory(const at::Tensor& real, const at::Tensor& trace_tensor) {
  if (!real.device().is_cpu()) return;
  const SuspendRecording suspended;
  const std::shared_ptr<TraceState>& state = trace_impl(trace_tensor)->state();
  const at::Tensor before = real.detach().clone(at::MemoryFormat::Contiguous);
  shared_memory_.push_back({real.detach(), before, state, root_of(*state).writes});
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
