#include "tracer/backward_graph.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/input_metadata.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"

namespace thunder::tracer {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

void accumulate(at::Tensor& sum, at::Tensor gradient) {
  if (!gradient.defined()) return;
  sum = sum.defined() ? sum.add(gradient) : std::move(gradient);
}

/// A gradient as the receiving node expects it: reduced where the operation broadcast, in the right dtype.
at::Tensor fit(at::Tensor gradient, const Edge& edge) {
  if (!gradient.defined()) return gradient;
  const auto& metadata = edge.function->input_metadata(edge.input_nr);
  gradient = metadata.maybe_reduce(edge.input_nr, std::move(gradient), [](const std::string& text) { return text; });
  const auto dtype = c10::typeMetaToScalarType(metadata.options().dtype());
  return gradient.scalar_type() == dtype ? gradient : gradient.to(dtype);
}

class Walk {
 public:
  void count_dependencies(std::span<const at::Tensor> outputs) {
    std::vector<Node*> pending;
    const auto visit = [&](const Edge& edge) {
      if (!edge.is_valid() || !seen_.insert(edge.function.get()).second) return;
      pending.push_back(edge.function.get());
      order_.push_back(edge.function.get());
    };
    for (const at::Tensor& output : outputs) visit(torch::autograd::impl::gradient_edge(output));
    while (!pending.empty()) {
      Node* node = pending.back();
      pending.pop_back();
      for (const Edge& edge : node->next_edges()) {
        if (edge.is_valid()) ++dependencies_[edge.function.get()];
        visit(edge);
      }
    }
  }

  void run(std::span<const at::Tensor> outputs, std::span<const at::Tensor> cotangents) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Edge edge = torch::autograd::impl::gradient_edge(outputs[i]);
      if (edge.is_valid()) receive(edge, fit(cotangents[i], edge));
    }
    for (Node* node : order_) {
      if (dependencies_[node] == 0) ready_.push_back(node);
    }
    while (!ready_.empty()) {
      Node* node = ready_.back();
      ready_.pop_back();
      step(*node);
    }
  }

  [[nodiscard]] std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> result;
    for (Node* node : order_) {
      if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) result.push_back(leaf->variable);
    }
    return result;
  }

  at::Tensor gradient_of(const at::Tensor& leaf) {
    const Edge edge = torch::autograd::impl::gradient_edge(leaf);
    const auto found = buffers_.find(edge.function.get());
    return found == buffers_.end() || found->second.empty() ? at::Tensor() : found->second[edge.input_nr];
  }

 private:
  void receive(const Edge& edge, at::Tensor gradient) {
    variable_list& buffer = buffers_[edge.function.get()];
    buffer.resize(edge.function->num_inputs());
    accumulate(buffer[edge.input_nr], std::move(gradient));
  }

  void step(Node& node) {
    if (dynamic_cast<torch::autograd::AccumulateGrad*>(&node) != nullptr) return;
    variable_list gradients = std::move(buffers_[&node]);
    gradients.resize(node.num_inputs());
    bool any = false;
    for (const at::Tensor& gradient : gradients) any |= gradient.defined();
    variable_list results = any ? node(std::move(gradients)) : variable_list(node.num_outputs());
    for (std::size_t i = 0; i < node.next_edges().size(); ++i) {
      const Edge& edge = node.next_edges()[i];
      if (!edge.is_valid()) continue;
      receive(edge, fit(std::move(results[i]), edge));
      if (--dependencies_[edge.function.get()] == 0) ready_.push_back(edge.function.get());
    }
  }

  std::unordered_set<Node*> seen_;
  std::vector<Node*> order_;  ///< of discovery
  std::unordered_map<Node*, int> dependencies_;
  std::unordered_map<Node*, variable_list> buffers_;
  std::vector<Node*> ready_;
};

}  // namespace

std::vector<at::Tensor> walk_backward(std::span<const at::Tensor> outputs, std::span<const at::Tensor> cotangents,
                                      std::span<const at::Tensor> inputs) {
  THUNDER_CHECK(outputs.size() == cotangents.size(), "walk_backward", "one cotangent for each output");
  const c10::AutoGradMode no_second_order(false);
  Walk walk;
  walk.count_dependencies(outputs);
  walk.run(outputs, cotangents);
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& input : inputs) {
    gradients.push_back(input.requires_grad() ? walk.gradient_of(input) : at::Tensor());
  }
  return gradients;
}

std::vector<at::Tensor> leaves_behind(const at::Tensor& output) {
  Walk walk;
  walk.count_dependencies({&output, 1});
  return walk.leaves();
}

}  // namespace thunder::tracer
