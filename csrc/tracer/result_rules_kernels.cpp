// Where kernels differ from what their meta kernels say of results.
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tracer/result_rule.h"
#include "tracer/result_rules.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

/// Where a norm that gives statistics has its weight; nullopt: it is no such norm.
std::optional<std::size_t> position_of_norm_weight(std::string_view name) {
  if (name == "aten::native_layer_norm") return 2;
  const bool has_second = name == "aten::native_group_norm" || name == "aten::native_batch_norm" ||
                          name.starts_with("aten::_native_batch_norm_legit") ||
                          name.starts_with("aten::_batch_norm_with_update");
  return has_second ? std::make_optional<std::size_t>(1) : std::nullopt;
}

/// The memory format that the kernel of a convolution gives its result; meta kernels know that of some kernels only.
at::MemoryFormat format_of_convolution(Given arguments) {
  const at::Tensor& image = arguments[0].toTensor();
  const at::Tensor& weight = arguments[1].toTensor();
  if (image.is_cpu()) {
    const bool is_channels_last = image.dim() == 4 && at::native::mkldnn_conv_use_channels_last(image, weight);
    return is_channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  }
  if (!image.is_cuda() || image.dim() < 4) return at::MemoryFormat::Contiguous;
  const auto bias = is_given(arguments[2]) ? std::make_optional(arguments[2].toTensor()) : std::nullopt;
  const auto numbers = [&](std::size_t i) { return c10::fromIntArrayRefSlow(arguments[i].toIntVector()).vec(); };
  const at::native::ConvBackend kernel =
      at::native::select_conv_backend(image, weight, bias, numbers(3), numbers(4), numbers(5), arguments[6].toBool(),
                                      numbers(7), arguments[8].toInt(), std::nullopt);
  return at::native::_determine_backend_memory_format(image, weight, kernel);
}

/// Kernels of the CPU keep statistics of 16-bit floats in the weight's dtype, meta kernels in another one.
IValue as_statistic(const at::Tensor& result, const at::Tensor& self, const IValue& weight) {
  if (!self.is_cpu() || !at::isReducedFloatingType(self.scalar_type())) return result;
  const at::ScalarType dtype = is_given(weight) ? weight.toTensor().scalar_type() : self.scalar_type();
  return result.scalar_type() == dtype ? result : at::empty_like(result, result.options().dtype(dtype));
}

/// A result that is a tensor like an argument: kernels allocate it so and compute into it, whatever dtype the operands
/// promote to; meta kernels promote.
struct LikeArgument {
  std::string_view name;
  std::size_t argument;
  bool is_contiguous = false;  ///< whatever the argument's strides
};
constexpr LikeArgument kLikeArguments[] = {
    {"aten::binary_cross_entropy", 0},
    {"aten::binary_cross_entropy_backward", 1},
    {"aten::huber_loss", 0},
    {"aten::huber_loss_backward", 1, true},
    {"aten::mse_loss_backward", 1, true},
    {"aten::normal", 0},
    {"aten::smooth_l1_loss_backward", 1, true},
    {"aten::soft_margin_loss", 0},
    {"aten::soft_margin_loss_backward", 1},
};

IValue like_argument(const LikeArgument& row, Given arguments, const at::Tensor& result) {
  if (!arguments[row.argument].isTensor()) return result;
  const at::Tensor& like = arguments[row.argument].toTensor();
  const bool is_laid_out = !row.is_contiguous || result.is_contiguous() || result.sizes() != like.sizes();
  if (is_laid_out && result.scalar_type() == like.scalar_type()) return result;
  const at::TensorOptions options = result.options().dtype(like.scalar_type());
  return is_laid_out ? at::empty_strided(result.sizes(), result.strides(), options)
                     : at::empty(result.sizes(), options);
}

/// On the CPU these give images laid out as an argument is; meta kernels know the kernels of GPUs.
struct LikeImages {
  std::string_view name;
  std::size_t argument;
};
constexpr LikeImages kLikeImages[] = {
    {"aten::channel_shuffle", 0},
    {"aten::max_unpool2d", 0},
    {"aten::native_channel_shuffle", 0},
    {"aten::pixel_shuffle", 0},
    {"aten::pixel_unshuffle", 0},
    {"aten::replication_pad2d", 0},
    {"aten::replication_pad2d_backward", 1},
};

IValue like_images(const at::Tensor& images, const at::Tensor& result) {
  if (!images.is_cpu() || images.dim() != 4 || result.dim() != 4) return result;
  return at::empty_like(result, at::TensorOptions(), images.suggest_memory_format());
}

template <typename Rows>
auto find(const Rows& rows, std::string_view name) {
  const auto row = std::ranges::find_if(rows, [&](const auto& each) { return each.name == name; });
  return row == std::end(rows) ? nullptr : &*row;
}

/// On the CPU the logarithm, and what its derivative needs, are computed of a contiguous copy.
IValue contiguous_on_cpu(const at::Tensor& self, const at::Tensor& result) {
  return self.is_cpu() && result.sizes() == self.sizes() && !result.is_contiguous()
             ? at::empty(result.sizes(), result.options())
             : result;
}

}  // namespace

IValue result_as_of_kernel(const c10::OperatorHandle& op, Given arguments, std::size_t index, IValue result) {
  const std::string& name = op.operator_name().name;
  if (const auto weight = position_of_norm_weight(name)) {
    const bool is_statistic = index == 1 || index == 2;
    return !is_statistic ? result : as_statistic(result.toTensor(), arguments[0].toTensor(), arguments[*weight]);
  }
  if (name == "aten::native_dropout") {  // the meta kernel gives the input itself where nothing is dropped
    const at::Tensor& input = arguments[0].toTensor();
    return result.toTensor().is_same(input) ? at::empty_like(input) : result;
  }
  if (const LikeArgument* row = find(kLikeArguments, name)) return like_argument(*row, arguments, result.toTensor());
  if (const LikeImages* row = find(kLikeImages, name)) {
    return like_images(arguments[row->argument].toTensor(), result.toTensor());
  }
  if (name == "aten::log_sigmoid_forward") return contiguous_on_cpu(arguments[0].toTensor(), result.toTensor());
  if (name == "aten::native_dropout_backward" && arguments[0].toTensor().is_cpu()) {
    return at::mul(at::mul(arguments[0].toTensor(), arguments[1].toTensor()), arguments[2].toScalar());
  }
  if (name != "aten::convolution" && name != "aten::_convolution") return result;
  const at::MemoryFormat format = format_of_convolution(arguments);
  if (format == at::MemoryFormat::Contiguous) return result;
  return at::empty_like(result.toTensor(), at::TensorOptions(), format);
}

}  // namespace thunder::tracer
