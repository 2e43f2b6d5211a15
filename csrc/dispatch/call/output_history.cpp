#include "dispatch/call/output_history.h"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "autograd/backward_graph.h"
#include "tracer/trace_node.h"

namespace thunder::dispatch {

namespace {

constexpr const char* kWrittenOver =
    "one of the variables needed for gradient computation has been modified by an inplace operation: the compiled "
    "function wrote to it after it had computed this result of it. Hint: enable anomaly detection to find the "
    "operation that failed to compute its gradient, with torch.autograd.set_detect_anomaly(True).";

/// The node of a result whose history can only raise. It runs in its turn: `torch::autograd::Error` would come before
/// leaves that eager gives their gradients first.
class RaisingNode final : public torch::autograd::Node {
 public:
  RaisingNode(const char* message, torch::autograd::edge_list edges) : Node(std::move(edges)), message_(message) {}
  [[nodiscard]] std::string name() const override { return "ThunderBackward"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*cotangents*/) override {
    throw std::runtime_error(message_);
  }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& /*args*/) const override {
    throw std::runtime_error(message_);
  }

 private:
  const char* message_;  ///< lives for the length of the process
};

/// Another tensor over the same memory. Outside of inference mode it may not be told to require grad.
at::Tensor as_inference_tensor(const at::Tensor& tensor, bool requires_grad) {
  const c10::InferenceMode made_inside;
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  at::Tensor made(std::move(impl));
  if (requires_grad) made.set_requires_grad(true);
  return made;
}

}  // namespace

OutputHistory history_of(const at::Tensor& output) {
  if (output.is_inference() && !c10::InferenceMode::is_enabled()) {
    return output.requires_grad() ? OutputHistory::kInferenceLeaf : OutputHistory::kInference;
  }
  if (!output.requires_grad()) return OutputHistory::kComputed;
  if (output.is_leaf()) return OutputHistory::kLeaf;
  const bool spent =
      autograd::any_node_behind(torch::autograd::impl::gradient_edge(output), [](torch::autograd::Node& node) {
        const tracer::TraceNode* own = tracer::as_trace_node(&node);
        return own != nullptr && own->is_released();
      });
  return spent ? OutputHistory::kSpent : OutputHistory::kComputed;
}

void give_history(at::Tensor& output, OutputHistory history, torch::autograd::edge_list edges) {
  const bool is_inference_leaf = history == OutputHistory::kInferenceLeaf;
  if (history == OutputHistory::kInference || is_inference_leaf)
    output = as_inference_tensor(output, is_inference_leaf);
  if (history == OutputHistory::kLeaf) output.set_requires_grad(true);
  if (!raises_in_backward(history)) return;
  const char* message = history == OutputHistory::kSpent ? torch::autograd::ERR_BACKWARD_TWICE : kWrittenOver;
  torch::autograd::set_history(output, autograd::make_node<RaisingNode>(message, std::move(edges)));
}

}  // namespace thunder::dispatch
