#include "runtime/spared_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "autograd/backward_graph.h"

namespace thunder::runtime {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::FunctionPreHook;
using torch::autograd::Node;
using torch::autograd::PostAccumulateGradHook;
using torch::autograd::variable_list;

/// A hook of a node that a compiled function leads to. In eager, the backward for which it was spared last does not
/// come there by way of that function.
class SparedHook final : public FunctionPreHook {
 public:
  explicit SparedHook(std::unique_ptr<FunctionPreHook> hook) : hook_(std::move(hook)) {}

  void spare() { backward_ = torch::autograd::get_current_graph_task_id(); }
  [[nodiscard]] const FunctionPreHook& hook() const { return *hook_; }

  variable_list operator()(const variable_list& cotangents) override {
    const bool is_spared = backward_ == torch::autograd::get_current_graph_task_id() &&
                           std::ranges::none_of(cotangents, &at::Tensor::defined);
    return is_spared ? cotangents : (*hook_)(cotangents);
  }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override { hook_->compiled_args(args); }

 private:
  std::unique_ptr<FunctionPreHook> hook_;
  std::atomic<int> backward_ = -1;
};

/// Likewise, the hooks of a leaf that run when its gradient is there: they are not told whether one came.
class SparedLeafHooks final : public PostAccumulateGradHook {
 public:
  explicit SparedLeafHooks(std::unique_ptr<PostAccumulateGradHook> hooks) : hooks_(std::move(hooks)) {}

  void spare(const at::Tensor& leaf) {
    const std::lock_guard<std::mutex> lock(mutex_);
    backward_ = torch::autograd::get_current_graph_task_id();
    before_ = leaf.grad();
    version_ = before_.defined() ? before_._version() : 0;
  }

  void operator()(const at::Tensor& leaf) override {
    if (!is_spared(leaf)) (*hooks_)(leaf);
  }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override { hooks_->compiled_args(args); }
  void apply_with_saved(at::Tensor& leaf, torch::dynamo::autograd::SwapSavedVariables& compiler) override {
    hooks_->apply_with_saved(leaf, compiler);
  }

 private:
  [[nodiscard]] bool is_spared(const at::Tensor& leaf) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const at::Tensor before = std::exchange(before_, at::Tensor());
    const bool is_same = before.is_same(leaf.grad()) && (!before.defined() || before._version() == version_);
    return is_same && backward_ == torch::autograd::get_current_graph_task_id();
  }

  std::unique_ptr<PostAccumulateGradHook> hooks_;
  std::mutex mutex_;  ///< backwards may run on several threads
  int backward_ = -1;
  at::Tensor before_;  ///< the leaf's gradient when the hooks were spared
  std::uint32_t version_ = 0;
};

/// Spares the hooks of a node for the backward that runs.
void spare_hooks(Node& node) {
  for (auto& hook : node.tensor_pre_hooks()) {
    if (dynamic_cast<const OwnHook*>(hook.get()) != nullptr) continue;
    if (dynamic_cast<SparedHook*>(hook.get()) == nullptr) hook = std::make_unique<SparedHook>(std::move(hook));
    static_cast<SparedHook&>(*hook).spare();
  }
  const auto* leaf = dynamic_cast<const AccumulateGrad*>(&node);
  if (leaf == nullptr) return;
  auto& hooks = torch::autograd::impl::post_acc_grad_hooks(leaf->variable);
  if (hooks == nullptr) return;
  if (dynamic_cast<SparedLeafHooks*>(hooks.get()) == nullptr) {
    hooks = std::make_unique<SparedLeafHooks>(std::move(hooks));
  }
  static_cast<SparedLeafHooks&>(*hooks).spare(leaf->variable);
}

}  // namespace

void spare_hooks_behind(const Edge& edge) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto spare = [](Node& node) { return spare_hooks(node), false; };
  static_cast<void>(autograd::any_node_behind(edge, spare));
}

const FunctionPreHook& as_registered(const FunctionPreHook& hook) {
  const auto* spared = dynamic_cast<const SparedHook*>(&hook);
  return spared == nullptr ? hook : spared->hook();
}

}  // namespace thunder::runtime
