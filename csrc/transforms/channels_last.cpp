#include "transforms/channels_last.h"

#include <ATen/ATen.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "operators/facts.h"
#include "transforms/batch_norm.h"
#include "transforms/group_norm.h"
#include "transforms/recorded_layout.h"
#include "transforms/replay.h"

namespace thunder::transforms {
namespace {

/// Below so many elements in all its images, a program is bound by its calls.
constexpr std::int64_t kSmall = 1 << 16;
/// A step of training copies each filter to the other layout twice, and its gradient back, where oneDNN copies images
/// otherwise. Measured with a ResNet-18: fewer elements of images for each one of the filters, and the layout costs up
/// to half of a step.
constexpr std::int64_t kImagesForEachFilter = 4;

/// The type of the images that a convolution goes over; null for all other symbols.
const ir::TensorType* image_of(const ir::Trace& trace, const ir::BoundSymbol& symbol, bool fuses_on_gpu) {
  if (!operators::has_fact(*symbol.op, operators::Fact::kIsConvolution)) return nullptr;
  const ir::TensorType* type = trace.tensor_type(symbol.arguments[0]);
  if (type == nullptr || type->sizes.size() != 4 || !ir::is_floating_point(type->dtype)) return nullptr;
  const bool is_on_gpu = fuses_on_gpu && type->device.type == ir::DeviceType::kCuda && ir::size_of(type->dtype) == 2;
  return type->device.type == ir::DeviceType::kCpu || is_on_gpu ? type : nullptr;
}

/// Elements of a tensor, or 0.
std::int64_t size_of(const ir::TensorType* type) {
  std::int64_t count = type == nullptr ? 0 : 1;
  for (std::size_t i = 0; type != nullptr && i < type->sizes.size(); ++i) count *= type->sizes[i].hint;
  return count;
}

bool is_candidate(const ir::Trace& trace, bool fuses_on_gpu) {
  std::int64_t taken = 0;
  std::int64_t made = 0;
  std::int64_t trained = 0;
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    const ir::TensorType* image = image_of(trace, symbol, fuses_on_gpu);
    if (image == nullptr) continue;
    taken += size_of(image);
    made += size_of(trace.tensor_type(symbol.results[0]));
    const ir::TensorType* filter = trace.tensor_type(symbol.arguments[1]);
    if (filter != nullptr && filter->requires_grad) trained += size_of(filter);
  }
  return can_repeat(trace) && taken >= kSmall && taken + made >= kImagesForEachFilter * trained;
}

/// How the operations of a replay are called.
class ChannelsLast {
 public:
  ChannelsLast(const ir::Trace& trace, bool fuses_on_gpu) : trace_(trace), fuses_on_gpu_(fuses_on_gpu) {}

  bool adapt(const ir::BoundSymbol& symbol, torch::jit::Stack& stack) {
    if (image_of(trace_, symbol, fuses_on_gpu_) != nullptr) {
      take_channels_last(stack);
    } else if (symbol.op->name == "aten::batch_norm") {
      return call_batch_norm(stack);
    } else if (symbol.op->name == "aten::group_norm") {
      return call_group_norm(stack);
    } else {
      restore_layouts(trace_, symbol, stack);
    }
    return false;
  }

  [[nodiscard]] bool pays() const { return convolutions_ >= 2 * copies_; }

 private:
  void take_channels_last(torch::jit::Stack& stack) {
    const at::Tensor image = stack[0].toTensor();
    const at::Tensor copy = image.contiguous(at::MemoryFormat::ChannelsLast);
    ++convolutions_;
    if (!copy.is_same(image)) ++copies_;
    stack[0] = copy;
  }

  [[nodiscard]] bool call_batch_norm(torch::jit::Stack& stack) const {
    BatchNorm norm(stack);
    if (!norm.has_columns() || (norm.input().is_cuda() && !fuses_on_gpu_)) return false;
    if (norm.is_training()) {
      norm.update_running_statistics();
      return false;
    }
    if (!norm.has_running_statistics()) return false;
    stack = {norm.evaluated()};
    return true;
  }

  static bool call_group_norm(torch::jit::Stack& stack) {
    const GroupNorm norm(stack);
    const auto needs_gradient = [](const c10::IValue& each) {
      return each.isTensor() && each.toTensor().requires_grad();
    };
    const bool has_rule = at::GradMode::is_enabled() && std::ranges::any_of(stack, needs_gradient);
    if (has_rule || !norm.has_columns()) return false;
    stack = {norm.normalized(norm.moments())};
    return true;
  }

  const ir::Trace& trace_;
  bool fuses_on_gpu_;
  std::size_t convolutions_ = 0;
  std::size_t copies_ = 0;
};

}  // namespace

std::optional<ir::Trace> channels_last(const ir::Trace& trace, bool fuses_on_gpu) {
  if (!is_candidate(trace, fuses_on_gpu)) return std::nullopt;
  RecordedInputs described{.types = {}, .data = {}, .is_same_kind = true};
  for (const ir::ValueId input : trace.inputs) described.types.push_back(trace.value(input).type);
  ChannelsLast layout(trace, fuses_on_gpu);
  const AdaptCall adapt = [&](const auto& symbol, auto& stack) { return layout.adapt(symbol, stack); };
  ir::Trace result = record(trace, kChannelsLast, described, [&](const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> outputs = replay(trace, inputs, GradMode::kAsRecorded, adapt);
    restore_outputs(trace, outputs);
    return outputs;
  });
  if (!layout.pays()) return std::nullopt;
  result.memory_of_inputs = trace.memory_of_inputs;
  return result;
}

}  // namespace thunder::transforms
