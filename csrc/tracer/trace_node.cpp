#include "tracer/trace_node.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ir/symbol_values.h"
#include "tracer/at_other_sizes.h"
#include "tracer/recording.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {

ReadMemory::ReadMemory(const at::Tensor& tensor)
    : version_(tensor.unsafeGetTensorImpl()->version_counter()),
      saved_version_(version_.current_version()),
      state_(trace_impl(root_tensor_of(tensor))->state()),
      hidden_writes_(state_->hidden_writes),
      shared_writes_(state_->shared_writes) {}

bool ReadMemory::is_written() const {
  return version() != saved_version_ || state_->hidden_writes != hidden_writes_ ||
         state_->shared_writes != shared_writes_;
}

TraceNode::TraceNode(Recording& recorder, std::string name, ir::BoundSymbol symbol)
    : recorder_(recorder),
      name_(std::move(name)),
      symbol_(std::move(symbol)),
      inputs_(ir::distinct_values(symbol_.arguments)),
      results_(ir::flat_results(symbol_)) {}

torch::autograd::variable_list TraceNode::apply(torch::autograd::variable_list&& cotangents) {
  if (TraceSession::current().top != &recorder_) refuse_backward_through_trace();
  return derive_at_all_sizes(*this, std::move(cotangents));
}

void TraceNode::watch(ir::ValueId value, const at::Tensor& tensor) {
  if (!tensor.is_inference()) watched_.push_back({value, ReadMemory(tensor)});
}

void TraceNode::note_written(const c10::OperatorHandle& writer, ir::ValueId before, ir::ValueId made,
                             const at::Tensor& target) {
  writer_ = writer;
  // Where the target is another argument too (`x.mul_(x)`), eager saves it as that, without a copy.
  std::size_t reads = 0;
  for (const ir::Argument& argument : symbol_.arguments) {
    ir::for_each_value(argument, [&](ir::ValueId id) { reads += id == before ? 1 : 0; });
  }
  const std::size_t erased = std::erase_if(watched_, [&](const Watched& watched) {
    return (watched.value == before && reads == 1) || watched.value == made;
  });
  if (erased != 0) watch(made, target);
}

bool TraceNode::watches_written() const {
  return std::ranges::any_of(watched_, [](const Watched& watched) { return watched.memory.is_written(); });
}

bool TraceNode::watches_hidden_write() const {
  return std::ranges::any_of(watched_, [](const Watched& watched) {
    return watched.memory.is_written() && watched.memory.version() == watched.memory.saved_version();
  });
}

bool TraceNode::is_written(ir::ValueId value) const {
  return std::ranges::any_of(
      watched_, [&](const Watched& watched) { return watched.value == value && watched.memory.is_written(); });
}

void TraceNode::require_unwritten(ir::ValueId value) const {
  const auto found = std::ranges::find(watched_, value, &Watched::value);
  if (found == watched_.end() || !found->memory.is_written()) return;
  if (found->memory.version() == found->memory.saved_version()) {
    throw UserError(ErrorKind::kNotImplemented,
                    "a tensor that a backward needs was written to through .data after it was used; write to it under "
                    "torch.no_grad(), before it is used");
  }
  throw UserError(ErrorKind::kRuntime,
                  "one of the variables needed for gradient computation has been modified by an inplace operation: an "
                  "argument or result of " +
                      symbol_.op->name + ", output of " + name_ + ", is at version " +
                      std::to_string(found->memory.version()) + "; expected version " +
                      std::to_string(found->memory.saved_version()) + " instead.");
}

torch::autograd::variable_list OutsideNode::apply(torch::autograd::variable_list&& /*cotangents*/) {
  throw UserError(ErrorKind::kNotImplemented,
                  "backward() inside a jitted function reached an input that has a history of its own (" + name_ +
                      "): expected leaves; pass x.detach().requires_grad_(), or call backward() outside, on what the "
                      "function returns");
}

torch::autograd::variable_list OverwrittenNode::apply(torch::autograd::variable_list&& cotangents) {
  torch::autograd::variable_list gradients(num_outputs());
  if (has_source_) gradients[0] = cotangents[0];
  for (std::size_t i = has_source_ ? 1 : 0; cotangents[0].defined() && i < gradients.size(); ++i) {
    const torch::autograd::Edge& edge = next_edge(i);
    if (!edge.is_valid()) continue;
    const auto& input = edge.function->input_metadata(edge.input_nr);
    gradients[i] = cotangents[0].new_zeros(C10_AS_INTARRAYREF_SLOW(input.shape_as_dim_vector()), input.options());
  }
  return gradients;
}

void overwrite_history(const at::Tensor& target, torch::autograd::edge_list edges,
                       const torch::autograd::Edge& source) {
  if (!torch::autograd::isDifferentiableType(target.scalar_type()) || edges.empty()) return;
  const bool has_source = source.is_valid();
  if (has_source) edges.insert(edges.begin(), source);
  const auto node = autograd::make_node<OverwrittenNode>(has_source);
  node->set_next_edges(std::move(edges));
  torch::autograd::set_history(target, node);
}

void forget_history(const at::Tensor& target) {
  torch::autograd::AutogradMeta* meta = torch::autograd::impl::get_autograd_meta(target);
  if (meta == nullptr) return;
  meta->set_requires_grad(false, target.unsafeGetTensorImpl());
  meta->grad_fn_ = nullptr;
  meta->output_nr_ = 0;
}

torch::autograd::edge_list edges_to(const std::vector<at::Tensor>& tensors) {
  torch::autograd::edge_list edges;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.requires_grad()) edges.push_back(torch::autograd::impl::gradient_edge(tensor));
  }
  return edges;
}

TraceNode* as_trace_node(torch::autograd::Node* node) { return dynamic_cast<TraceNode*>(node); }

bool is_foreign(torch::autograd::Node* node) {
  return as_trace_node(node) == nullptr && dynamic_cast<OutsideNode*>(node) == nullptr &&
         dynamic_cast<torch::autograd::AccumulateGrad*>(node) == nullptr;
}

}  // namespace thunder::tracer
