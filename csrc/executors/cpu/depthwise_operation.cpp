#include "executors/cpu/depthwise_operation.h"

#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_strided.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "bridge/convert.h"
#include "executors/api/operands.h"
#include "executors/cpu/depthwise.h"
#include "executors/cpu/plain_tensor.h"
#include "ir/symbol_values.h"
#include "operators/convolution_backward.h"
#include "operators/image_pairs.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

using enum operators::ConvolutionBackward::Place;

struct Backward {
  c10::OperatorHandle op;
  DepthwiseConvolution convolution;
  std::vector<std::int64_t> filter_strides;
};

bool is_of_images(const ir::TensorType* type, ir::Dtype dtype) {
  return type != nullptr && type->device.type == ir::DeviceType::kCpu && type->layout == ir::Layout::kStrided &&
         type->sizes.size() == 4 && type->dtype == dtype && passes::element_count(*type) > 0;
}

/// oneDNN's own kernel for small filters is faster; it has none for others.
bool onednn_is_fast(const ir::TensorType& filter, const std::array<std::int64_t, 2>& dilation) {
  return filter.dtype == ir::Dtype::kFloat32 && filter.sizes[3].hint <= 3 &&
         dilation == std::array<std::int64_t, 2>{1, 1};
}

/// The gradient of the input is PyTorch's.
void run_depthwise(const void* state, std::vector<c10::IValue>& stack) {
  const auto& backward = *static_cast<const Backward*>(state);
  c10::IValue* arguments = stack.data() + stack.size() - kPlaces;
  const at::Tensor gradient = arguments[kGradient].toTensor();
  const at::Tensor input = arguments[kImages].toTensor();
  const at::Tensor filter = arguments[kFilters].toTensor();
  for (const std::size_t i : {kGradient, kImages, kFilters}) {
    if (!is_plain(arguments[i].toTensor(), filter.scalar_type(), 4)) return backward.op.callBoxed(stack);
  }
  const auto mask = arguments[kMask].toBoolList().vec();
  at::Tensor of_filter = at::empty_strided(filter.sizes(), backward.filter_strides, filter.options());
  const DepthwiseGradients gradients = depthwise_gradients(input, gradient, backward.convolution, mask[2]);
  of_filter.copy_(gradients.filter);
  const at::Tensor of_bias = mask[2] ? gradients.bias.to(filter.scalar_type()) : at::Tensor();
  if (mask[0]) {
    arguments[kMask] = c10::List<bool>({true, false, false});
    backward.op.callBoxed(stack);
  } else {
    stack.resize(stack.size() - kPlaces);
    stack.insert(stack.end(), 3, c10::IValue(at::Tensor()));
  }
  stack[stack.size() - 2] = std::move(of_filter);
  stack[stack.size() - 1] = of_bias;
}

}  // namespace

bool takes_depthwise(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  if (symbol.op->name != operators::ConvolutionBackward::kName || !symbol.op->overload.empty() ||
      symbol.arguments.size() != kPlaces)
    return false;
  const auto type_of = [&](std::size_t i) { return trace.tensor_type(passes::value_argument(symbol, i)); };
  const ir::TensorType* filter = type_of(kFilters);
  if (!passes::is_float(filter)) return false;
  for (const std::size_t i : {kGradient, kImages, kFilters}) {
    if (!is_of_images(type_of(i), filter->dtype) || ir::has_symbols(*type_of(i))) return false;
  }
  for (const std::size_t i : {kStride, kPadding, kDilation}) {
    if (!operators::pair_of(symbol.arguments[i])) return false;
  }
  if (onednn_is_fast(*filter, *operators::pair_of(symbol.arguments[kDilation]))) return false;
  const ir::Dim& channels = type_of(kImages)->sizes[1];
  const auto* mask = symbol.arguments[kMask].get<ir::ArgumentList>();
  return symbol.arguments[kTransposed] == ir::Argument(false) &&
         symbol.arguments[kGroups] == ir::Argument(channels.hint) && filter->sizes[0] == channels && mask != nullptr &&
         mask->at(1) == ir::Argument(true) && symbol.results.at(1).is<ir::ValueId>();
}

void lower_depthwise(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  const auto hints_of = [&](const ir::Argument& value, auto dims) {
    return bridge::hints(trace.tensor_type(std::get<ir::ValueId>(value.content))->*dims);
  };
  const std::vector<std::int64_t> filter = hints_of(symbol.arguments[kFilters], &ir::TensorType::sizes);
  const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
  auto backward =
      std::make_shared<const Backward>(Backward{op,
                                                {.filter = {filter[2], filter[3]},
                                                 .stride = *operators::pair_of(symbol.arguments[kStride]),
                                                 .padding = *operators::pair_of(symbol.arguments[kPadding]),
                                                 .dilation = *operators::pair_of(symbol.arguments[kDilation])},
                                                hints_of(symbol.results[1], &ir::TensorType::strides)});
  builder.call(op, &run_depthwise, std::move(backward), operands_of(symbol, trace), result_slots(symbol),
               location_of(symbol));
}

}  // namespace thunder::executors::cpu
