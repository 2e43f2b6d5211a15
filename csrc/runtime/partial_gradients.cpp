#include "runtime/partial_gradients.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "autograd/node_pointer.h"
#include "runtime/spared_hooks.h"

namespace thunder::runtime {
namespace {

using autograd::make_node;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;
using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::SwapSavedVariables;

HookIndex hook_index = nullptr;

/// A hook of one output, which a backward that comes from another one does not reach: in eager code each output has a
/// node of its own.
class HookWhereReached final : public OwnHook {
 public:
  HookWhereReached(std::unique_ptr<FunctionPreHook> hook, std::size_t index) : hook_(std::move(hook)), index_(index) {}

  variable_list operator()(const variable_list& cotangents) override {
    return cotangents[index_].defined() ? (*hook_)(cotangents) : cotangents;
  }
  void compiled_args(CompiledNodeArgs& args) const override { hook_->compiled_args(args); }
  [[nodiscard]] std::size_t index() const { return index_; }

 private:
  std::unique_ptr<FunctionPreHook> hook_;
  std::size_t index_;
};

std::optional<std::size_t> index_of_hook(const torch::autograd::FunctionPreHook& hook) {
  if (const auto* wrapped = dynamic_cast<const HookWhereReached*>(&hook)) return wrapped->index();
  return hook_index == nullptr ? std::nullopt : hook_index(as_registered(hook));
}

/// The first hook of a node with several outputs. Those after it were registered by the user.
class HookGate final : public OwnHook {
 public:
  explicit HookGate(Node* node) : node_(node) {}

  variable_list operator()(const variable_list& cotangents) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& hook : node_->tensor_pre_hooks()) {
      if (dynamic_cast<const HookWhereReached*>(hook.get()) != nullptr) continue;
      if (const auto index = index_of_hook(*hook)) hook = std::make_unique<HookWhereReached>(std::move(hook), *index);
    }
    return cotangents;
  }
  void compiled_args(CompiledNodeArgs& /*args*/) const override {}

 private:
  Node* node_;  ///< owns this
  std::mutex mutex_;
};

constexpr const char* kPartialGradient =
    "thunder: the gradient of a result of a compiled function is asked for (by retain_grad, a hook or "
    "torch.autograd.grad) by way of another result that is computed from it inside; compute that one outside, or call "
    "the function without thunder.jit";

/// Whether a hook, `retain_grad` or the backward that runs asks for the gradient of a result of `node`. `own` is a hook
/// of ours.
bool is_looked_at(Node* node, std::uint32_t index, const torch::autograd::FunctionPreHook* own = nullptr) {
  if (node->retains_grad_hooks().contains(index)) return true;
  for (const auto& hook : node->tensor_pre_hooks()) {
    if (hook.get() != own && index_of_hook(*hook) == index) return true;
  }
  const auto* running = torch::autograd::get_current_graph_task_exec_info();
  const auto here = running == nullptr ? decltype(running->end()){} : running->find(node);
  if (running == nullptr || here == running->end() || here->second.captures_ == nullptr) return false;
  return std::ranges::any_of(*here->second.captures_, [&](const auto& capture) {
    return static_cast<std::uint32_t>(capture.input_idx_) == index;
  });
}

/// Refuses what would see a part of a gradient only. An output from which others are computed has a gradient by these,
/// which never comes to the node as a cotangent.
class PartialGradientCheck final : public OwnHook {
 public:
  PartialGradientCheck(std::shared_ptr<const DifferentiableProgram> program, Node* node)
      : program_(std::move(program)), node_(node) {}

  variable_list operator()(const variable_list& cotangents) override {
    for (const auto& [from, to] : program_->feeds) {
      TORCH_CHECK(!cotangents[to].defined() || !is_looked_at(node_, from, this), kPartialGradient);
    }
    return cotangents;
  }
  /// Which cotangents will come is not known yet.
  void compiled_args(CompiledNodeArgs& /*args*/) const override {
    for (const auto& [from, to] : program_->feeds) TORCH_CHECK(!is_looked_at(node_, from, this), kPartialGradient);
  }

 private:
  std::shared_ptr<const DifferentiableProgram> program_;
  Node* node_;  ///< owns this
};

/// Stands between a result and its backward, with an edge to a view that the result is computed from inside: a backward
/// that looks at the gradient of the view comes by here.
class PartialViewCheck final : public Node {
 public:
  explicit PartialViewCheck(torch::autograd::edge_list&& edges) : Node(std::move(edges)) {}

  [[nodiscard]] std::string name() const override { return "ThunderBackward"; }

  variable_list apply(variable_list&& cotangents) override {
    if (cotangents[0].defined()) require_unobserved_views();
    variable_list gradients(num_outputs());
    gradients[0] = std::move(cotangents[0]);
    return gradients;
  }

  void compiled_args(CompiledNodeArgs& /*args*/) const override { require_unobserved_views(); }
  variable_list apply_with_saved(const variable_list& cotangents, SwapSavedVariables& /*compiler*/) override {
    variable_list gradients(num_outputs());
    gradients[0] = cotangents[0];
    return gradients;
  }

 private:
  void require_unobserved_views() const {
    for (std::size_t i = 1; i < num_outputs(); ++i) {
      const Edge& view = next_edge(i);
      const bool has_hooks = !(view.function->pre_hooks().empty() && view.function->post_hooks().empty());
      TORCH_CHECK(!(has_hooks || is_looked_at(view.function.get(), view.input_nr)), kPartialGradient);
    }
  }
};

}  // namespace

void set_hook_index(HookIndex index) { hook_index = index; }

std::unique_ptr<torch::autograd::FunctionPreHook> make_hook_gate(Node* node) {
  return std::make_unique<HookGate>(node);
}

std::unique_ptr<torch::autograd::FunctionPreHook> make_partial_gradient_check(
    std::shared_ptr<const DifferentiableProgram> program, Node* node) {
  return std::make_unique<PartialGradientCheck>(std::move(program), node);
}

void refuse_partial_gradient(const at::Tensor& view, const at::Tensor& output) {
  if (!view.grad_fn() || !output.grad_fn()) return;
  torch::autograd::edge_list edges{torch::autograd::impl::gradient_edge(output),
                                   torch::autograd::impl::gradient_edge(view)};
  const at::Tensor base = view.is_view() ? at::Tensor(view._base()) : at::Tensor();
  if (base.defined() && base.grad_fn()) edges.push_back(torch::autograd::impl::gradient_edge(base));
  const auto check = make_node<PartialViewCheck>(std::move(edges));
  check->add_input_metadata(output);
  torch::autograd::impl::set_gradient_edge(output, {check, 0});
}

}  // namespace thunder::runtime
