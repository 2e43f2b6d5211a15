#include "executors/cpu/convolution.h"

#include <ATen/Context.h>
#include <ATen/ops/mkldnn_reorder_conv2d_weight.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bridge/convert.h"
#include "executors/api/operands.h"
#include "executors/cpu/activations.h"
#include "executors/cpu/onednn.h"
#include "executors/cpu/packed_weight.h"
#include "executors/cpu/plain_tensor.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

using Stack = std::vector<c10::IValue>;
using Pointwise = at::Tensor(const at::Tensor& images, const at::Tensor& filter, const std::optional<at::Tensor>& bias,
                             at::IntArrayRef padding, at::IntArrayRef stride, at::IntArrayRef dilation,
                             std::int64_t groups, c10::string_view activation,
                             c10::List<std::optional<at::Scalar>> numbers, std::optional<c10::string_view> algorithm);

const auto& pointwise() {
  static const auto kHandle = find_onednn<Pointwise>("mkldnn::_convolution_pointwise");
  return kHandle;
}

/// The positions of the arguments of `aten::conv2d`. A convolution with gradients was recorded as another operator.
struct At {
  enum : std::size_t { kImages, kFilter, kBias, kStride, kPadding, kDilation, kGroups, kArguments };
};

struct Convolution {
  Convolution(c10::OperatorHandle handle, at::ScalarType type, WeightGuard guard, std::string layout)
      : op(std::move(handle)), dtype(type), filter(guard, std::move(layout)) {}

  c10::OperatorHandle op;
  at::ScalarType dtype;
  std::optional<Activation> activation{};
  mutable PackedWeight filter;
};

/// For rows and columns, of a list that may hold one number for both.
std::vector<std::int64_t> pair_of(const c10::IValue& value) {
  std::vector<std::int64_t> pair = value.toIntVector();
  pair.resize(2, pair.front());
  return pair;
}

/// Images of one channel, or of one pixel, lie in both ways: PyTorch takes them as plain ones, whose results are plain.
bool are_channels_last_alone(const at::Tensor& images) {
  return images.is_contiguous(at::MemoryFormat::ChannelsLast) && !images.is_contiguous();
}

std::optional<at::Tensor> convolve(const Convolution& convolution, const c10::IValue* arguments) {
  const at::Tensor& images = arguments[At::kImages].toTensor();
  const at::Tensor& filter = arguments[At::kFilter].toTensor();
  if (!is_plain(images, convolution.dtype, 4) || !is_plain(filter, convolution.dtype, 4) ||
      !are_channels_last_alone(images) || !at::globalContext().userEnabledMkldnn() ||
      arguments[At::kGroups].toInt() != 1) {
    return std::nullopt;
  }
  const auto stride = pair_of(arguments[At::kStride]);
  const auto padding = pair_of(arguments[At::kPadding]);
  const auto dilation = pair_of(arguments[At::kDilation]);
  const auto packed = convolution.filter.of(filter, [&](const at::Tensor& plain) {
    return at::mkldnn_reorder_conv2d_weight(plain.detach().to_mkldnn(), padding, stride, dilation, 1, images.sizes());
  });
  if (!packed && !convolution.activation) return std::nullopt;
  const auto bias = arguments[At::kBias].toOptional<at::Tensor>();
  const Epilogue epilogue = epilogue_of(convolution.activation);
  return pointwise()->call(images, packed.value_or(filter), bias, padding, stride, dilation, 1, epilogue.name,
                           epilogue.numbers, epilogue.algorithm);
}

void run_convolution(const void* state, Stack& stack) {
  const auto& convolution = *static_cast<const Convolution*>(state);
  const std::size_t first = stack.size() - At::kArguments;
  std::optional<at::Tensor> result = convolve(convolution, stack.data() + first);
  if (!result) return run_apart(convolution.op, convolution.activation, stack);
  stack.resize(first);
  stack.emplace_back(*std::move(result));
}

}  // namespace

bool takes_convolution(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  if (symbol.op->name != "aten::conv2d" || !symbol.op->overload.empty() || !pointwise()) return false;
  const ir::TensorType* images = passes::argument_type(symbol, trace, At::kImages);
  const ir::TensorType* filter = passes::argument_type(symbol, trace, At::kFilter);
  return images != nullptr && filter != nullptr && images->device.type == ir::DeviceType::kCpu &&
         images->dtype == filter->dtype && onednn_has(images->dtype) && images->sizes.size() == 4;
}

namespace {

/// The sizes and arguments by which oneDNN chooses the layout of filters, as text.
std::string layout_of(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  std::string text = "convolution";
  const auto add = [&](std::int64_t number) { text += ' ' + std::to_string(number); };
  for (const ir::Dim& size : passes::argument_type(symbol, trace, At::kImages)->sizes) add(size.hint);
  for (std::size_t i = At::kStride; i < symbol.arguments.size(); ++i) {
    text += ',';
    const auto* list = symbol.arguments[i].get<ir::ArgumentList>();
    if (list == nullptr) continue;
    for (const ir::Argument& number : *list) add(std::get<std::int64_t>(number.content));
  }
  return text;
}

void lower_guarded(const ir::BoundSymbol& symbol, const ir::BoundSymbol* activation, const ir::Trace& trace,
                   WeightGuard guard, runtime::ProgramBuilder& builder) {
  const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
  const at::ScalarType dtype = bridge::to_torch(passes::result_type(symbol, trace)->dtype);
  auto convolution = std::make_shared<Convolution>(op, dtype, guard, layout_of(symbol, trace));
  if (activation != nullptr) convolution->activation = activation_of(*activation, trace);
  const ir::BoundSymbol& last = activation != nullptr ? *activation : symbol;
  builder.call(op, &run_convolution, std::move(convolution), operands_of(symbol, trace), result_slots(last),
               location_of(symbol));
}

}  // namespace

void lower_convolution(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  lower_guarded(symbol, nullptr, trace, WeightGuard::kBytes, builder);
}

void lower_prepacked_convolution(const ir::BoundSymbol& symbol, const ir::Trace& trace,
                                 runtime::ProgramBuilder& builder) {
  lower_guarded(symbol, nullptr, trace, WeightGuard::kVersion, builder);
}

bool convolution_takes_activation(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  if (!takes_convolution(symbol, trace)) return false;
  const auto* groups = symbol.arguments[At::kGroups].get<std::int64_t>();
  const ir::TensorType& images = *passes::argument_type(symbol, trace, At::kImages);
  const bool is_channels_last = images.strides[1].hint == 1 && images.strides[3].hint == images.sizes[1].hint;
  return is_channels_last && groups != nullptr && *groups == 1;
}

void lower_convolution_with_activation(const ir::BoundSymbol& convolution, const ir::BoundSymbol& activation,
                                       const ir::Trace& trace, bool prepacks, runtime::ProgramBuilder& builder) {
  lower_guarded(convolution, &activation, trace, prepacks ? WeightGuard::kVersion : WeightGuard::kBytes, builder);
}

}  // namespace thunder::executors::cpu
