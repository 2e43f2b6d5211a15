#include "dispatch/call/output_history.h"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "autograd/backward_graph.h"
#include "tracer/trace_node.h"

namespace thunder::dispatch {

namespace {

/// Another tensor over the same memory.
at::Tensor as_inference_tensor(const at::Tensor& tensor) {
  const c10::InferenceMode made_inside;
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return at::Tensor(std::move(impl));
}

}  // namespace

OutputHistory history_of(const at::Tensor& output) {
  if (output.is_inference() && !c10::InferenceMode::is_enabled()) return OutputHistory::kInference;
  if (!output.requires_grad()) return OutputHistory::kComputed;
  if (output.is_leaf()) return OutputHistory::kLeaf;
  const bool spent =
      autograd::any_node_behind(torch::autograd::impl::gradient_edge(output), [](torch::autograd::Node& node) {
        const tracer::TraceNode* own = tracer::as_trace_node(&node);
        return own != nullptr && own->is_released();
      });
  return spent ? OutputHistory::kSpent : OutputHistory::kComputed;
}

void give_history(at::Tensor& output, OutputHistory history) {
  if (history == OutputHistory::kInference) output = as_inference_tensor(output);
  if (history == OutputHistory::kLeaf) output.set_requires_grad(true);
  if (history != OutputHistory::kSpent) return;
  const auto error =
      autograd::make_node<torch::autograd::Error>(torch::autograd::ERR_BACKWARD_TWICE, torch::autograd::edge_list());
  torch::autograd::set_history(output, error);
}

}  // namespace thunder::dispatch
