#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_map>
#include <vector>

#include "autograd/node_pointer.h"
#include "base/error.h"
#include "bridge/convert.h"
#include "tracer/custom_gradient.h"
#include "tracer/gradient_follower.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"
#include "tracer/size_shadows.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

/// Makes a tensor one that requires grad; no gradient is taken of what is recorded at other sizes.
void give_history(const at::Tensor& tensor, ir::ValueId value) {
  trace_impl(tensor)->state()->value = value;
  if (tensor.requires_grad()) return;
  torch::autograd::set_history(tensor, autograd::make_node<OutsideNode>("FollowedBackward", value, 0));
}

/// Whether a tensor is gradient `i`, of the sizes of the input that it is the gradient of.
bool is_gradient_of(const CustomGradient& gradient, std::size_t i, const at::Tensor& tensor, Recorder& there) {
  if (!tensor.defined()) return gradient.gradients[i] == ir::kNoValue;
  if (there.value_of(tensor) != gradient.gradients[i]) return false;
  const ir::TensorType* input =
      gradient.inputs[i] == ir::kNoValue ? nullptr : there.trace().tensor_type(gradient.inputs[i]);
  return input == nullptr || input->sizes == bridge::type_of(tensor).sizes;
}

class FollowedGradient final : public GradientFollower {
 public:
  explicit FollowedGradient(SizeShadows& shadows) : shadows_(shadows) {}

  std::shared_ptr<void> inside() override { return std::make_shared<SizeShadows::Inside>(shadows_); }

  void add_cotangent(const at::Tensor& result, const at::Tensor& cotangent) override {
    const auto add = [&](Recorder& there, const SizeShadows::FindTensor& find) {
      ir::TensorType type = bridge::type_of(find(result));
      type.requires_grad = false;
      return there.tensors.add(ir::make_type(std::move(type)));
    };
    shadows_.follow_data(add, cotangent);
  }

  void begin() override {
    shadows_.follow_data([&](Recorder& there, const SizeShadows::FindTensor& /*find*/) {
      marks_.emplace(&there, std::make_unique<TraceBuilder::Mark>(there.builder));
      return at::Tensor();
    });
  }

  void finish(std::span<const at::Tensor> results, std::span<const ir::ValueId> values,
              std::span<const at::Tensor> gradients, const CustomGradient& gradient) override {
    shadows_.follow_data([&](Recorder& there, const SizeShadows::FindTensor& find) {
      const RecordTop recording(there);
      auto own = std::make_shared<CustomGradient>(gradient);
      bool is_alike = true;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        is_alike =
            is_gradient_of(gradient, i, gradients[i].defined() ? find(gradients[i]) : at::Tensor(), there) && is_alike;
      }
      own->symbols = there.builder.cut(marks_.at(&there)->position());
      for (std::size_t i = 0; i < results.size(); ++i) {
        is_alike = trace_impl(find(results[i]))->state()->value == values[i] && is_alike;
      }
      THUNDER_CHECK(is_alike, "tracer", "a backward is another one at other sizes");
      const std::vector<ir::ValueId> made = there.gradients.add({values.begin(), values.end()}, std::move(own));
      for (std::size_t i = 0; i < results.size(); ++i) give_history(find(results[i]), made[i]);
      return at::Tensor();
    });
  }

 private:
  SizeShadows& shadows_;
  std::unordered_map<const Recorder*, std::unique_ptr<TraceBuilder::Mark>> marks_;
};

}  // namespace

std::unique_ptr<GradientFollower> SizeShadows::follow_gradient(const Recording& program) {
  // Within an operation nothing of what the backward does is followed, and parts of a program have one size.
  if (is_outside() && is_of_program(static_cast<const Recorder&>(program))) {
    return std::make_unique<FollowedGradient>(*this);
  }
  pin_all();
  return nullptr;
}

}  // namespace thunder::tracer
