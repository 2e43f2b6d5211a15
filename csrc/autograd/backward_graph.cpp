#include "autograd/backward_graph.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/input_metadata.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "autograd/node_pointer.h"
#include "base/error.h"

namespace thunder::autograd {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

void accumulate(at::Tensor& sum, at::Tensor gradient) {
  if (!gradient.defined()) return;
  sum = sum.defined() ? sum.add(gradient) : std::move(gradient);
}

/// A gradient as the receiving node expects it: reduced where the operation broadcast, unless it `is_reduced`, in the
/// right dtype.
at::Tensor fit(at::Tensor gradient, const Edge& edge, bool is_reduced = false) {
  if (!gradient.defined()) return gradient;
  const auto& metadata = edge.function->input_metadata(edge.input_nr);
  if (metadata.was_default_constructed()) return gradient;
  if (!is_reduced) {
    gradient = metadata.maybe_reduce(edge.input_nr, std::move(gradient), [](const std::string& text) { return text; });
  }
  const auto dtype = c10::typeMetaToScalarType(metadata.options().dtype());
  if (gradient.is_complex() && !c10::isComplexType(dtype)) {
    throw UserError(ErrorKind::kNotImplemented, "a backward gives a complex gradient to a tensor of real numbers");
  }
  return gradient.scalar_type() == dtype ? gradient : gradient.to(dtype);
}

/// Adds to a leaf's gradient as AccumulateGrad does, without its look at the implementation of the tensors.
void accumulate_into_leaf(const at::Tensor& leaf, at::Tensor gradient) {
  at::Tensor& sum = leaf.mutable_grad();
  if (!sum.defined()) {
    const bool is_ours = gradient.use_count() <= 1;
    if (!c10::GradMode::is_enabled() && is_ours && torch::autograd::utils::obeys_layout_contract(gradient, leaf)) {
      sum = gradient.detach();
    } else {
      sum = torch::autograd::utils::clone_obey_contract(gradient, leaf);
    }
  } else if (c10::GradMode::is_enabled()) {
    sum = sum.add(gradient);
  } else {
    sum.add_(gradient);
  }
}

class Walk {
 public:
  explicit Walk(BackwardWalk& options) : options_(options) {}

  std::vector<at::Tensor> run() {
    for (const Edge& target : options_.targets) target_nodes_.insert(target.function.get());
    for (const Edge& root : options_.roots) discover(root);
    find_needed();
    for (std::size_t i = 0; i < options_.roots.size(); ++i) {
      const Edge& root = options_.roots[i];
      if (root.is_valid() && needed_.contains(root.function.get())) {
        receive(root, fit(options_.cotangents[i], root, has_sizes(options_.cotangents[i], root)));
      }
    }
    for (Node* node : order_) {
      if (needed_.contains(node) && dependencies_[node] == 0) ready_.push(node);
    }
    while (!ready_.empty()) {
      Node* node = ready_.top();
      ready_.pop();
      step(*node);
    }
    return results();
  }

 private:
  struct Later {
    bool operator()(const Node* left, const Node* right) const { return left->sequence_nr() < right->sequence_nr(); }
  };

  [[nodiscard]] bool stops_at(Node& node) const { return options_.stops_at && options_.stops_at(node); }
  [[nodiscard]] bool has_sizes(const at::Tensor& gradient, const Edge& edge) const {
    if (!options_.has_sizes || !gradient.defined()) return false;
    const auto& metadata = edge.function->input_metadata(edge.input_nr);
    return !metadata.was_default_constructed() && options_.has_sizes(gradient, metadata.shape_as_dim_vector());
  }

  void discover(const Edge& root) {
    std::vector<Node*> pending;
    const auto visit = [&](const Edge& edge) {
      if (!edge.is_valid() || !seen_.insert(edge.function.get()).second) return;
      pending.push_back(edge.function.get());
      order_.push_back(edge.function.get());
      kept_.push_back(edge.function);
    };
    visit(root);
    while (!pending.empty()) {
      Node* node = pending.back();
      pending.pop_back();
      if (stops_at(*node)) continue;
      for (const Edge& edge : node->next_edges()) visit(edge);
    }
  }

  /// Nodes on the way to a target; all of them when there is none. Children before parents.
  void find_needed() {
    std::unordered_set<Node*> done;
    std::vector<std::pair<Node*, std::size_t>> stack;
    for (Node* root : order_) {
      if (!done.insert(root).second) continue;
      stack.emplace_back(root, 0);
      while (!stack.empty()) {
        auto& [node, next] = stack.back();
        const auto& edges = node->next_edges();
        const bool leads_on = !stops_at(*node) && next < edges.size();
        if (leads_on) {
          Node* child = edges[next++].function.get();
          if (child != nullptr && done.insert(child).second) stack.emplace_back(child, 0);
          continue;
        }
        decide(*node);
        stack.pop_back();
      }
    }
    for (Node* node : order_) {
      if (!runs(*node)) continue;
      for (const Edge& edge : node->next_edges()) {
        if (edge.is_valid()) ++dependencies_[edge.function.get()];
      }
    }
  }

  void decide(Node& node) {
    const bool collects_all = options_.targets.empty();
    bool leads_to_target = false;
    if (!stops_at(node)) {
      for (const Edge& edge : node.next_edges()) leads_to_target |= needed_.contains(edge.function.get());
    }
    if (collects_all || leads_to_target || target_nodes_.contains(&node)) needed_.insert(&node);
    if (collects_all || leads_to_target) executed_.insert(&node);
  }

  [[nodiscard]] bool runs(Node& node) const { return executed_.contains(&node) && !stops_at(node); }

  void receive(const Edge& edge, at::Tensor gradient) {
    variable_list& buffer = buffers_[edge.function.get()];
    buffer.resize(std::max<std::size_t>(edge.function->num_inputs(), edge.input_nr + 1));
    accumulate(buffer[edge.input_nr], std::move(gradient));
  }

  [[nodiscard]] variable_list with_tensor_hooks(Node& node, variable_list gradients) const {
    if (!options_.run_hooks) return gradients;
    for (const auto& hook : node.tensor_pre_hooks()) gradients = (*hook)(gradients);
    for (const auto& [index, hook] : node.retains_grad_hooks()) gradients = (*hook)(gradients);
    return gradients;
  }

  void step(Node& node) {
    variable_list gradients = std::move(buffers_[&node]);
    gradients.resize(std::max<std::size_t>(node.num_inputs(), gradients.size()));
    if (auto* leaf = dynamic_cast<AccumulateGrad*>(&node)) return step_leaf(*leaf, std::move(gradients[0]));
    const bool any = std::any_of(gradients.begin(), gradients.end(), [](auto& t) { return t.defined(); });
    if (any && !stops_at(node)) gradients = with_tensor_hooks(node, std::move(gradients));
    if (target_nodes_.contains(&node) || stops_at(node)) collected_[&node] = gradients;
    if (!runs(node)) return;
    variable_list results = any ? apply(node, std::move(gradients)) : variable_list(node.num_outputs());
    for (std::size_t i = 0; i < node.next_edges().size(); ++i) {
      const Edge& edge = node.next_edges()[i];
      if (!edge.is_valid()) continue;
      Node* next = edge.function.get();
      const bool is_needed = needed_.contains(next);
      if (is_needed && i < results.size()) {
        const bool is_reduced = has_sizes(results[i], edge);
        receive(edge, fit(std::move(results[i]), edge, is_reduced));
      }
      if (--dependencies_[next] == 0 && is_needed) ready_.push(next);
    }
  }

  variable_list apply(Node& node, variable_list gradients) const {
    if (options_.run_hooks) {
      for (const auto& hook : node.pre_hooks()) gradients = (*hook)(gradients);
    }
    if (!options_.keep_graph) node.will_release_variables();
    variable_list results;
    if (node.post_hooks().empty() || !options_.run_hooks) {
      results = node(std::move(gradients));
    } else {
      results = node(variable_list(gradients));
      for (const auto& hook : node.post_hooks()) results = (*hook)(results, gradients);
    }
    if (!options_.keep_graph) node.release_variables();
    return results;
  }

  void step_leaf(AccumulateGrad& node, at::Tensor gradient) {
    const at::Tensor leaf = node.variable;
    if (gradient.defined() && options_.run_hooks) {
      if (options_.leaf_hooks) options_.leaf_hooks(leaf, gradient);
      variable_list gradients{std::move(gradient)};
      for (const auto& hook : node.tensor_pre_hooks()) gradients = (*hook)(gradients);
      gradient = std::move(gradients[0]);
    }
    const bool is_target = target_nodes_.contains(&node);
    if (is_target || stops_at(node)) collected_[&node] = {gradient};
    if (!options_.accumulate || !gradient.defined() || (!options_.targets.empty() && !is_target)) return;
    if (is_target) collected_.erase(&node);
    if (options_.before_leaf) options_.before_leaf(leaf);
    {
      const std::shared_ptr<void> scope = options_.while_accumulating ? options_.while_accumulating() : nullptr;
      accumulate_into_leaf(leaf, std::move(gradient));
    }
    if (const auto& hook = node.tensor_post_acc_grad_hooks()) (*hook)(leaf);
    if (options_.after_leaf) options_.after_leaf(leaf);
  }

  std::vector<at::Tensor> results() {
    std::vector<at::Tensor> gradients;
    const auto collected = [&](const Edge& edge) {
      const auto found = collected_.find(edge.function.get());
      if (found == collected_.end() || edge.input_nr >= found->second.size()) return at::Tensor();
      return found->second[edge.input_nr];
    };
    for (const Edge& target : options_.targets) gradients.push_back(collected(target));
    for (const auto& node : kept_) {
      const auto found = collected_.find(node.get());
      if (found == collected_.end() || target_nodes_.contains(node.get())) continue;
      for (std::size_t i = 0; i < found->second.size(); ++i) {
        if (!found->second[i].defined()) continue;
        options_.stopped.emplace_back(node, static_cast<std::uint32_t>(i));
        gradients.push_back(found->second[i]);
      }
    }
    return gradients;
  }

  BackwardWalk& options_;
  std::unordered_set<Node*> target_nodes_;
  std::unordered_set<Node*> seen_;
  std::vector<Node*> order_;  ///< in order of discovery
  std::vector<NodePointer> kept_;
  std::unordered_set<Node*> needed_;    ///< gradients go there
  std::unordered_set<Node*> executed_;  ///< and on from there
  std::unordered_map<Node*, int> dependencies_;
  std::unordered_map<Node*, variable_list> buffers_;
  std::unordered_map<Node*, variable_list> collected_;
  std::priority_queue<Node*, std::vector<Node*>, Later> ready_;
};

}  // namespace

std::vector<at::Tensor> BackwardWalk::run() {
  THUNDER_CHECK(roots.size() == cotangents.size(), "backward", "one cotangent for each root");
  const c10::AutoGradMode second_order(create_graph);
  return Walk(*this).run();
}

std::vector<at::Tensor> walk_backward(std::span<const at::Tensor> outputs, std::span<const at::Tensor> cotangents,
                                      std::span<const at::Tensor> inputs, bool create_graph) {
  THUNDER_CHECK(outputs.size() == cotangents.size(), "walk_backward", "one cotangent for each output");
  BackwardWalk walk;
  walk.create_graph = create_graph;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    walk.roots.push_back(torch::autograd::impl::gradient_edge(outputs[i]));
    walk.cotangents.push_back(cotangents[i]);
  }
  for (const at::Tensor& input : inputs) {
    if (input.requires_grad()) walk.targets.push_back(torch::autograd::impl::gradient_edge(input));
  }
  std::vector<at::Tensor> gradients;
  if (walk.targets.empty()) return std::vector<at::Tensor>(inputs.size());
  std::vector<at::Tensor> found = walk.run();
  std::size_t next = 0;
  for (const at::Tensor& input : inputs) gradients.push_back(input.requires_grad() ? found[next++] : at::Tensor());
  return gradients;
}

bool any_node_behind(const Edge& edge, const std::function<bool(Node&)>& found) {
  std::unordered_set<Node*> seen;
  std::vector<Node*> pending;
  const auto visit = [&](const Edge& next) {
    if (next.is_valid() && seen.insert(next.function.get()).second) pending.push_back(next.function.get());
  };
  visit(edge);
  while (!pending.empty()) {
    Node* node = pending.back();
    pending.pop_back();
    if (found(*node)) return true;
    for (const Edge& next : node->next_edges()) visit(next);
  }
  return false;
}

}  // namespace thunder::autograd
