#include "transforms/patch_convolutions.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ir/type.h"
#include "operators/facts.h"
#include "transforms/recorded_layout.h"
#include "transforms/replay.h"

namespace thunder::transforms {
namespace {

/// The arguments of `conv2d`, and further ones of `convolution`, which it is recorded as in training.
enum Argument : std::size_t {
  kImage,
  kFilter,
  kBias,
  kStride,
  kPadding,
  kDilation,
  kGroups,
  kArguments,
  kIsTransposed = 6,
  kGroupsInTraining = 8,
  kArgumentsInTraining
};

/// From eight channels on cuDNN takes images as they are.
constexpr std::int64_t kMostChannels = 7;
/// Elements of a patch below which a matmul spends its time on the result: the filters of 4 × 4 pixels of a ConvNeXt.
constexpr std::int64_t kLeastElements = 128;
/// Rows of matrices are a multiple of 16 bytes.
constexpr std::int64_t kElementsOfVector = 8;

bool is_matrix_of_filters(const ir::TensorType& filter) {
  const auto& sizes = filter.sizes;
  const std::int64_t elements = sizes[1].hint * sizes[2].hint * sizes[3].hint;
  return elements >= kLeastElements && elements % kElementsOfVector == 0 && sizes[0].hint % kElementsOfVector == 0;
}

/// Whether a symbol is a convolution of few channels, of 16 bits, that has no groups.
bool has_few_channels(const ir::Trace& trace, const ir::BoundSymbol& symbol, ir::DeviceType device) {
  if (!operators::has_fact(*symbol.op, operators::Fact::kIsConvolution)) return false;
  const std::size_t count = symbol.arguments.size();
  if (count != kArguments && count != kArgumentsInTraining) return false;
  const bool is_in_training = count == kArgumentsInTraining;
  if (is_in_training && symbol.arguments[kIsTransposed] != ir::Argument(false)) return false;
  if (symbol.arguments[is_in_training ? kGroupsInTraining : kGroups] != ir::Argument(1)) return false;
  const ir::TensorType* image = trace.tensor_type(symbol.arguments[kImage]);
  const ir::TensorType* filter = trace.tensor_type(symbol.arguments[kFilter]);
  if (image == nullptr || filter == nullptr || image->sizes.size() != 4 || filter->sizes.size() != 4) return false;
  return image->device.type == device && ir::is_floating_point(image->dtype) && ir::size_of(image->dtype) == 2 &&
         image->dtype == filter->dtype && image->sizes[1].hint <= kMostChannels && is_matrix_of_filters(*filter);
}

/// Whether an argument is these numbers, for height and width, or the same one for both.
bool are_equal(const ir::Argument& argument, std::int64_t height, std::int64_t width) {
  const auto* list = argument.get<ir::ArgumentList>();
  if (list == nullptr || list->empty()) return false;
  return list->front() == ir::Argument(height) && list->back() == ir::Argument(width);
}

/// Whether a symbol is a convolution that has each pixel in exactly one patch.
bool is_of_patches(const ir::Trace& trace, const ir::BoundSymbol& symbol, ir::DeviceType device) {
  if (!has_few_channels(trace, symbol, device)) return false;
  const ir::Dims& image = trace.tensor_type(symbol.arguments[kImage])->sizes;
  const ir::Dims& filter = trace.tensor_type(symbol.arguments[kFilter])->sizes;
  const auto tiles = [&](std::size_t dim) {
    return image[dim].hint >= filter[dim].hint && image[dim].hint % filter[dim].hint == 0;
  };
  return image[0].hint > 0 && tiles(2) && tiles(3) &&
         are_equal(symbol.arguments[kStride], filter[2].hint, filter[3].hint) &&
         are_equal(symbol.arguments[kPadding], 0, 0) && are_equal(symbol.arguments[kDilation], 1, 1);
}

/// `[N, O, height, width]`, in channels-last memory.
at::Tensor convolved(const torch::jit::Stack& stack) {
  const at::Tensor& image = stack[kImage].toTensor();
  const at::Tensor& filter = stack[kFilter].toTensor();
  const std::int64_t height = image.size(2) / filter.size(2);
  const std::int64_t width = image.size(3) / filter.size(3);
  const at::Tensor patches =
      image.reshape({image.size(0), image.size(1), height, filter.size(2), width, filter.size(3)})
          .permute({0, 2, 4, 1, 3, 5})
          .reshape({image.size(0), height, width, filter[0].numel()});
  const auto bias = stack[kBias].toOptional<at::Tensor>();
  return at::linear(patches, filter.reshape({filter.size(0), -1}), bias).permute({0, 3, 1, 2});
}

}  // namespace

std::optional<ir::Trace> patch_convolutions(const ir::Trace& trace, ir::DeviceType device) {
  const auto goes_over_patches = [&](const auto& symbol) { return is_of_patches(trace, symbol, device); };
  if (std::ranges::none_of(trace.symbols, goes_over_patches) || !can_repeat(trace)) return std::nullopt;
  const AdaptCall adapt = [&](const ir::BoundSymbol& symbol, torch::jit::Stack& stack) {
    restore_layouts(trace, symbol, stack);
    if (!goes_over_patches(symbol)) return false;
    stack = {convolved(stack)};
    return true;
  };
  RecordedInputs described{.types = {}, .data = {}, .is_same_kind = true};
  for (const ir::ValueId input : trace.inputs) described.types.push_back(trace.value(input).type);
  ir::Trace result = record(trace, kPatchConvolutions, described, [&](const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> outputs = replay(trace, inputs, GradMode::kAsRecorded, adapt);
    restore_outputs(trace, outputs);
    return outputs;
  });
  result.memory_of_inputs = trace.memory_of_inputs;
  return result;
}

}  // namespace thunder::transforms
