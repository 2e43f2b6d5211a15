#include "executors/cpu/convolution.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mkldnn_reorder_conv2d_weight.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "executors/api/lowering.h"
#include "executors/cpu/packed_filter.h"
#include "executors/cpu/roles.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

using Stack = std::vector<c10::IValue>;
using Pointwise = at::Tensor(const at::Tensor& images, const at::Tensor& filter, const std::optional<at::Tensor>& bias,
                             at::IntArrayRef padding, at::IntArrayRef stride, at::IntArrayRef dilation,
                             std::int64_t groups, c10::string_view activation,
                             c10::List<std::optional<at::Scalar>> numbers, std::optional<c10::string_view> algorithm);
using PointwiseHandle = c10::TypedOperatorHandle<Pointwise>;

const std::optional<PointwiseHandle>& pointwise() {
  static const auto kHandle = [] {
    const auto op = c10::Dispatcher::singleton().findSchema({"mkldnn::_convolution_pointwise", ""});
    const bool is_there = op && at::Context::hasMKLDNN();
    return is_there ? std::make_optional(op->typed<Pointwise>()) : std::nullopt;
  }();
  return kHandle;
}

struct At {
  enum : std::size_t { kImages, kFilter, kBias, kStride, kPadding, kDilation, kTransposed };
};

/// An operator, the number of its arguments, and where it has the groups; the arguments of `At` come first.
struct Signature {
  std::string_view name;
  std::size_t arguments;
  std::size_t groups;
};
constexpr Signature kSignatures[] = {{"aten::conv2d", 7, 6}, {"aten::convolution", 9, 8}};

const Signature* signature_of(const ir::BoundSymbol& symbol) {
  for (const Signature& signature : kSignatures) {
    if (symbol.op->name == signature.name && symbol.op->overload.empty()) return &signature;
  }
  return nullptr;
}

struct Convolution {
  c10::OperatorHandle op;
  Signature signature;
  mutable PackedFilter filter;

  Convolution(c10::OperatorHandle handle, const Signature& given) : op(std::move(handle)), signature(given) {}
};

bool is_of_floats(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.dim() == 4 &&
         tensor.scalar_type() == at::kFloat && tensor.numel() > 0 && !tensor.is_neg();
}

/// For rows and columns, of a list that may hold one number for both.
std::vector<std::int64_t> pair_of(const c10::IValue& value) {
  std::vector<std::int64_t> pair = value.toIntVector();
  pair.resize(2, pair.front());
  return pair;
}

std::optional<at::Tensor> convolve(const Convolution& convolution, const c10::IValue* arguments) {
  const at::Tensor& images = arguments[At::kImages].toTensor();
  const at::Tensor& filter = arguments[At::kFilter].toTensor();
  const bool needs_gradient = at::GradMode::is_enabled() && filter.requires_grad();
  const bool is_transposed = convolution.signature.groups != At::kTransposed && arguments[At::kTransposed].toBool();
  if (needs_gradient || is_transposed || !is_of_floats(images) || !is_of_floats(filter) ||
      !images.is_contiguous(at::MemoryFormat::ChannelsLast) || !at::globalContext().userEnabledMkldnn() ||
      arguments[convolution.signature.groups].toInt() != 1) {
    return std::nullopt;
  }
  const auto stride = pair_of(arguments[At::kStride]);
  const auto padding = pair_of(arguments[At::kPadding]);
  const auto dilation = pair_of(arguments[At::kDilation]);
  const auto packed = convolution.filter.of(filter, [&](const at::Tensor& plain) {
    return at::mkldnn_reorder_conv2d_weight(plain.detach().to_mkldnn(), padding, stride, dilation, 1, images.sizes());
  });
  if (!packed) return std::nullopt;
  const auto bias = arguments[At::kBias].toOptional<at::Tensor>();
  return pointwise()->call(images, *packed, bias, padding, stride, dilation, 1, "none",
                           c10::List<std::optional<at::Scalar>>(), "");
}

void run_convolution(const void* state, Stack& stack) {
  const auto& convolution = *static_cast<const Convolution*>(state);
  const std::size_t first = stack.size() - convolution.signature.arguments;
  std::optional<at::Tensor> result = convolve(convolution, stack.data() + first);
  if (!result) return convolution.op.callBoxed(stack);
  stack.resize(first);
  stack.emplace_back(*std::move(result));
}

}  // namespace

bool is_convolution(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  if (symbol.op->style != ir::CallStyle::kTorchOperator || signature_of(symbol) == nullptr || !pointwise())
    return false;
  const ir::TensorType* images = argument_type(symbol, trace, At::kImages);
  const ir::TensorType* filter = argument_type(symbol, trace, At::kFilter);
  return images != nullptr && filter != nullptr && images->device.type == ir::DeviceType::kCpu &&
         images->dtype == ir::Dtype::kFloat32 && filter->dtype == ir::Dtype::kFloat32 && images->sizes.size() == 4;
}

void lower_convolution(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
  builder.call(op, &run_convolution, std::make_shared<const Convolution>(op, *signature_of(symbol)),
               operands_of(symbol, trace), result_slots(symbol), location_of(symbol));
}

}  // namespace thunder::executors::cpu
