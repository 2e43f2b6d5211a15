#include "tracer/known_contents.h"

#include <algorithm>
#include <span>
#include <utility>

#include "tracer/evaluate.h"
#include "tracer/map_tensors.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_session.h"

namespace thunder::tracer {

KnownContents::KnownContents() : previous_(std::exchange(TraceSession::current().known_contents, &tensors_)) {}
KnownContents::~KnownContents() { TraceSession::current().known_contents = previous_; }

bool call_on_known_contents(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  std::vector<at::Tensor>* const contents = TraceSession::current().known_contents;
  if (contents == nullptr || op.schema().is_mutable()) return false;
  const std::size_t below = stack.size() - op.schema().arguments().size();
  const std::vector<at::Tensor> tensors = tensors_of(std::span(stack).subspan(below));
  const auto is_known = [&](const at::Tensor& tensor) {
    return std::ranges::any_of(*contents, [&](const at::Tensor& known) { return known.is_same(tensor); });
  };
  if (tensors.empty() || !std::ranges::all_of(tensors, is_known)) return false;
  const SuspendRecording suspended;
  op.callBoxed(stack);
  for (at::Tensor& result : tensors_of(std::span(stack).subspan(below))) contents->push_back(std::move(result));
  return true;
}

}  // namespace thunder::tracer
