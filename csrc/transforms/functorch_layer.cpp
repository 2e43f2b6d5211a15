#include "transforms/functorch_layer.h"

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/TensorWrapper.h>
#include <ATen/ops/_make_dual.h>
#include <ATen/ops/_unpack_dual.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"

namespace thunder::transforms {
namespace {

namespace functorch = at::functorch;

functorch::RandomnessType to_torch(Randomness randomness) {
  switch (randomness) {
    case Randomness::kError:
      return functorch::RandomnessType::Error;
    case Randomness::kSame:
      return functorch::RandomnessType::Same;
    case Randomness::kDifferent:
      return functorch::RandomnessType::Different;
  }
  return functorch::RandomnessType::Error;
}

bool is_forward_mode() { return c10::AutogradState::get_tls_state().get_fw_grad_mode(); }
void set_forward_mode(bool enabled) { c10::AutogradState::get_tls_state().set_fw_grad_mode(enabled); }

// Forward AD has one level; tensors of nested layers tell their tangents apart by their wrappers.
thread_local int jvp_depth = 0;

}  // namespace

VmapLayer::VmapLayer(std::int64_t batch_size, Randomness randomness)
    : batch_size_(batch_size),
      level_(functorch::initAndPushDynamicLayer(functorch::TransformType::Vmap, c10::SymInt(batch_size),
                                                to_torch(randomness))) {}

VmapLayer::~VmapLayer() { functorch::popDynamicLayerAndDeleteMetadata(); }

at::Tensor VmapLayer::enter(const at::Tensor& tensor, std::optional<std::int64_t> dim) const {
  return dim && tensor.defined() ? functorch::addBatchDim(tensor, *dim, level_) : tensor;
}

bool VmapLayer::is_batched(const at::Tensor& tensor) const {
  const auto* batched = functorch::maybeGetBatchedImpl(tensor);
  return batched != nullptr && batched->level() == level_;
}

at::Tensor VmapLayer::leave(const at::Tensor& tensor, std::int64_t dim) const {
  if (!tensor.defined()) return tensor;
  if (is_batched(tensor)) {
    const auto* batched = functorch::maybeGetBatchedImpl(tensor);
    return batched->bdim() == dim ? batched->value() : batched->value().movedim(batched->bdim(), dim);
  }
  std::vector<std::int64_t> sizes(tensor.sizes().begin(), tensor.sizes().end());
  sizes.insert(sizes.begin() + dim, batch_size_);
  return tensor.unsqueeze(dim).expand(sizes);
}

JvpLayer::JvpLayer()
    : level_(functorch::initAndPushDynamicLayer(functorch::TransformType::Jvp, std::nullopt, std::nullopt, std::nullopt,
                                                is_forward_mode())),
      previous_forward_mode_(is_forward_mode()),
      owns_dual_level_(jvp_depth++ == 0) {
  set_forward_mode(true);
  if (owns_dual_level_) dual_level_ = torch::autograd::forward_ad::enter_dual_level();
}

JvpLayer::~JvpLayer() {
  if (owns_dual_level_) torch::autograd::forward_ad::exit_dual_level(dual_level_);
  set_forward_mode(previous_forward_mode_);
  --jvp_depth;
  functorch::popDynamicLayerAndDeleteMetadata();
}

at::Tensor JvpLayer::enter(const at::Tensor& primal, const at::Tensor& tangent) const {
  return at::_make_dual(primal, tangent, static_cast<std::int64_t>(dual_level_));
}

JvpLayer::Dual JvpLayer::leave(const at::Tensor& dual) const {
  if (!dual.defined()) return {};
  auto [primal, tangent] = at::_unpack_dual(dual, static_cast<std::int64_t>(dual_level_));
  return {unwrap(primal), unwrap(tangent)};
}

at::Tensor JvpLayer::unwrap(const at::Tensor& tensor) const {
  if (!tensor.defined()) return tensor;
  const auto* wrapper = functorch::maybeGetTensorWrapper(tensor);
  return wrapper != nullptr && wrapper->level() == level_ ? wrapper->value() : tensor;
}

at::Tensor below_layers(const at::Tensor& tensor) {
  if (functorch::isBatchedTensor(tensor)) {
    throw UserError(ErrorKind::kRuntime,
                    "vmap: expected a function that does not read the data of tensors, got one that does, and differs "
                    "between examples; use torch.where in the place of a branch");
  }
  const auto* wrapper = functorch::maybeGetTensorWrapper(tensor);
  return wrapper == nullptr ? tensor : below_layers(wrapper->value());
}

bool is_batched(const at::Tensor& tensor) { return functorch::isBatchedTensor(tensor); }

at::Tensor unwrap_dead(const at::Tensor& tensor) { return functorch::unwrapIfDead(tensor); }

}  // namespace thunder::transforms
