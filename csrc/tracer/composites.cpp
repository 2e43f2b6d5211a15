#include "tracer/composites.h"

#include <span>
#include <utility>

#include "tracer/map_tensors.h"
#include "tracer/operators.h"
#include "tracer/recorder.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

class CountsFromTensors {
 public:
  explicit CountsFromTensors(bool now) : before_(std::exchange(TraceSession::current().counts_from_tensors, now)) {}
  ~CountsFromTensors() { TraceSession::current().counts_from_tensors = before_; }
  CountsFromTensors(const CountsFromTensors&) = delete;
  CountsFromTensors& operator=(const CountsFromTensors&) = delete;

 private:
  bool before_;
};

}  // namespace

void call_composite(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const bool is_pytorchs = op.operator_name().name.starts_with("aten::");
  if (!is_pytorchs) {
    for (const at::Tensor& tensor : tensors_of(std::span(stack).last(op.schema().arguments().size()))) {
      if (is_trace_tensor(tensor)) recorder_on_top()->tensors.note_offset_asked(tensor);
    }
  }
  const CountsFromTensors scope(is_pytorchs && !op.schema().argumentIndexWithName("storage_offset"));
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, stack);
}

bool counts_from_tensors() { return TraceSession::current().counts_from_tensors; }

}  // namespace thunder::tracer
