// Layers of networks, and their derivatives.
#include <ATen/OpMathType.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tracer/result_rule.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

/// With a weight for each channel, which has the sizes of what it broadcasts to.
Result prelu(Given arguments) {
  return of_contiguous({arguments[0].toTensor(), arguments[1].toTensor()}, arguments[0].toTensor().options());
}

/// Whether results of norms on the CPU have the strides of the tensor.
bool is_contiguous_or_images(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_floating_point() &&
         (tensor.is_contiguous() || tensor.is_contiguous(at::MemoryFormat::ChannelsLast));
}

Result adaptive_average(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const std::vector<std::int64_t> pooled = arguments[1].toIntVector();
  const bool is_known = (self.dim() == 3 || self.dim() == 4) && pooled.size() == 2 && pooled[0] > 0 && pooled[1] > 0;
  if (!is_known || !is_float_or_double(self) || !self.is_contiguous() || self.numel() == 0) return std::nullopt;
  std::vector<std::int64_t> sizes = self.sizes().vec();
  std::ranges::copy(pooled, sizes.end() - 2);
  return at::empty(sizes, self.options());
}

Result safe_softmax(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (!is_float_or_double(self) || !self.is_contiguous() || !arguments[2].isNone()) return std::nullopt;
  return at::empty(self.sizes(), self.options());
}

/// (cotangent, indices, rows of the table, …)
Result embedding_dense_backward(Given arguments) {
  const at::Tensor& cotangent = arguments[0].toTensor();
  if (!is_float_or_double(cotangent) || cotangent.dim() == 0) return std::nullopt;
  return at::empty({arguments[2].toInt(), cotangent.size(-1)}, cotangent.options());
}

Result embedding(Given arguments) {
  const at::Tensor& weight = arguments[0].toTensor();
  const at::Tensor& indices = arguments[1].toTensor();
  const bool is_index = indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt;
  if (weight.dim() != 2 || !is_index || indices.device() != weight.device()) return std::nullopt;
  std::vector<std::int64_t> sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  return at::empty(sizes, weight.options());
}

/// The result of a convolution of images or sequences on the CPU; `result_as_of_kernel` knows the memory format.
Result convolution(Given arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& weight = arguments[1].toTensor();
  const auto is_known = [&](const at::Tensor& tensor) {
    return tensor.device().is_cpu() && tensor.scalar_type() == input.scalar_type() &&
           (tensor.scalar_type() == at::kFloat || at::isReducedFloatingType(tensor.scalar_type()));
  };
  const std::int64_t dims = input.dim();
  const std::int64_t groups = arguments[8].toInt();
  const bool is_transposed = arguments[6].toBool();
  if (!is_known(input) || !is_known(weight)) return std::nullopt;
  const bool is_channels_last = dims == 4 && at::native::mkldnn_conv_use_channels_last(input, weight);
  if (!input.is_contiguous() && !is_channels_last) return std::nullopt;
  if ((dims != 3 && dims != 4) || weight.dim() != dims || groups < 1 || weight.size(0) % groups != 0) {
    return std::nullopt;
  }
  const std::int64_t channels = weight.size(1) * groups;  // channels on the larger side of the filter
  if (input.size(1) != (is_transposed ? weight.size(0) : channels)) return std::nullopt;
  if (is_given(arguments[2]) && (!is_known(arguments[2].toTensor()) || arguments[2].toTensor().dim() != 1 ||
                                 arguments[2].toTensor().size(0) != (is_transposed ? channels : weight.size(0)))) {
    return std::nullopt;
  }
  const auto stride = arguments[3].toIntVector();
  const auto padding = arguments[4].toIntVector();
  const auto dilation = arguments[5].toIntVector();
  const auto behind = arguments[7].toIntVector();
  const auto is_valid = [&](const std::vector<std::int64_t>& list, std::int64_t least) {
    return std::ssize(list) == dims - 2 &&
           std::ranges::all_of(list, [least](std::int64_t number) { return number >= least; });
  };
  if (!is_valid(stride, 1) || !is_valid(padding, 0) || !is_valid(dilation, 1) || !is_valid(behind, 0)) {
    return std::nullopt;
  }
  std::vector<std::int64_t> sizes;
  if (is_transposed) {
    sizes = at::native::conv_input_size(input.sizes(), weight.sizes(), padding, behind, stride, dilation, groups);
  } else {
    sizes = at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  }
  const bool has_elements = std::ranges::all_of(sizes, [](std::int64_t size) { return size > 0; });
  for (std::int64_t i = 2; i < dims; ++i) {
    const std::int64_t reach = dilation[i - 2] * (weight.size(i) - 1) + 1;
    const bool fits = is_transposed ? behind[i - 2] < std::max(stride[i - 2], dilation[i - 2])
                                    : input.size(i) + 2 * padding[i - 2] >= reach;
    if (!fits) return std::nullopt;
  }
  return has_elements ? std::optional(at::empty(sizes, input.options())) : std::nullopt;
}

/// The dtype in which a norm computes; nullopt: it refuses these dtypes, or the rules do not know it. On the CPU, one
/// of half precision may have weights of single precision, all of them.
std::optional<at::ScalarType> dtype_of_norm(const at::Tensor& self, std::initializer_list<IValue> weights) {
  const auto are_all = [&](at::ScalarType dtype) {
    return std::ranges::all_of(weights, [dtype](const IValue& weight) {
      return !is_given(weight) || weight.toTensor().scalar_type() == dtype;
    });
  };
  const bool is_half = self.is_cpu() && at::isReducedFloatingType(self.scalar_type());
  if (!is_float_or_double(self) && !is_half) return std::nullopt;
  if (are_all(self.scalar_type())) return self.scalar_type();
  return is_half && are_all(at::kFloat) ? std::optional(at::kFloat) : std::nullopt;
}

/// The results of a norm: `result`, mean and reciprocal deviation.
Results with_statistics(const at::Tensor& result, c10::IntArrayRef sizes, at::ScalarType dtype) {
  const at::TensorOptions options = result.options().dtype(dtype);
  return {{result, at::empty(sizes, options), at::empty(sizes, options)}};
}

Results layer_norm(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const std::vector<std::int64_t> normalized = arguments[1].toIntVector();
  const std::int64_t kept = self.dim() - std::ssize(normalized);
  const auto dtype = dtype_of_norm(self, {arguments[2], arguments[3]});
  if (!dtype || kept < 0 || self.sizes().slice(kept) != normalized) return std::nullopt;
  for (const std::size_t i : {2, 3}) {
    const IValue& weight = arguments[i];
    if (is_given(weight) && weight.toTensor().sizes() != normalized) return std::nullopt;
  }
  std::vector<std::int64_t> rows = self.sizes().vec();
  std::fill(rows.begin() + kept, rows.end(), 1);
  return with_statistics(at::empty(self.sizes(), self.options()), rows, *dtype);
}

Results batch_norm(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const bool is_laid_out_as_self = is_contiguous_or_images(self);
  if ((!is_laid_out_as_self && !self.is_cpu()) || self.dim() < 2) return std::nullopt;
  const auto dtype = dtype_of_norm(self, {arguments[1], arguments[2], arguments[3], arguments[4]});
  if (!dtype) return std::nullopt;
  const at::Tensor result = is_laid_out_as_self ? *like_elements(arguments) : at::empty(self.sizes(), self.options());
  return with_statistics(result, {arguments[5].toBool() ? self.size(1) : 0}, *dtype);
}

/// With new running statistics, too.
Results functional_batch_norm(Given arguments) {
  Results results = batch_norm(arguments);
  for (std::size_t i = 3; i < 5 && results; ++i) {
    if (!is_given(arguments[i])) return std::nullopt;
    results->push_back(at::empty_like(arguments[i].toTensor()));
  }
  return results;
}

Results group_norm(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const auto dtype = dtype_of_norm(self, {arguments[1], arguments[2]});
  if (!dtype || !is_contiguous_or_images(self)) return std::nullopt;
  return with_statistics(*like_elements(arguments), {arguments[3].toInt(), arguments[6].toInt()}, *dtype);
}

/// Result, and the logarithm of each row's sum.
Results attention(Given arguments) {
  const at::Tensor& query = arguments[0].toTensor();
  if (!query.is_floating_point() || query.dim() != 4) return std::nullopt;
  const std::int64_t heads = query.size(1);
  const std::int64_t rows = query.size(2);
  const at::Tensor sums =
      at::empty_strided({query.size(0), heads, rows}, {heads * rows, 1, std::max<std::int64_t>(heads, 1)},
                        query.options().dtype(at::toOpMathType(query.scalar_type())));
  return {{*like_elements(arguments), sums}};
}

/// Gradients of an input and of what has these sizes, of which a mask leaves some out.
Results masked_gradients(const at::Tensor& of_input, c10::IntArrayRef sizes, const IValue& mask, at::ScalarType dtype) {
  const at::TensorOptions options = of_input.options().dtype(dtype);
  std::vector<at::Tensor> results{of_input, at::empty(sizes, options), at::empty(sizes, options)};
  const auto is_asked = mask.toBoolList();
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!is_asked.get(i)) results[i] = at::Tensor();
  }
  return results;
}

/// Whether the cotangent and the input of a norm lie alike in memory, so that its gradients lie like them.
bool lies_like(const at::Tensor& cotangent, const at::Tensor& input) {
  return is_contiguous_or_images(input) && cotangent.scalar_type() == input.scalar_type() &&
         cotangent.sizes() == input.sizes() && cotangent.strides() == input.strides();
}

/// (cotangent, input, normalized sizes, mean, reciprocal deviation, weight, bias, mask)
Results layer_norm_backward(Given arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const at::Tensor& cotangent = arguments[0].toTensor();
  const bool is_known = cotangent.sizes() == input.sizes() && cotangent.scalar_type() == input.scalar_type() &&
                        input.device().is_cpu() && input.numel() != 0;
  const auto dtype = dtype_of_norm(input, {arguments[3], arguments[4], arguments[5], arguments[6]});
  if (!is_known || !dtype) return std::nullopt;
  for (const std::size_t i : {5, 6}) {
    const bool is_asked = arguments[7].toBoolList().get(i - 4);
    if (is_asked && !is_given(arguments[i])) return std::nullopt;
  }
  return masked_gradients(at::empty(input.sizes(), input.options()), arguments[2].toIntVector(), arguments[7], *dtype);
}

/// (cotangent, input, weight, running mean, running variance, mean, reciprocal deviation, training, epsilon, mask)
Results batch_norm_backward(Given arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  if (!lies_like(arguments[0].toTensor(), input) || input.dim() < 2) return std::nullopt;
  const auto dtype = dtype_of_norm(input, {arguments[2], arguments[3], arguments[4], arguments[5], arguments[6]});
  if (!dtype) return std::nullopt;
  return masked_gradients(*like_elements(arguments.subspan(1)), {input.size(1)}, arguments[9], *dtype);
}

/// (cotangent, input, mean, reciprocal deviation, weight, examples, channels, elements of each, groups, mask)
Results group_norm_backward(Given arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const auto dtype = dtype_of_norm(input, {arguments[2], arguments[3], arguments[4]});
  if (!dtype || !lies_like(arguments[0].toTensor(), input)) return std::nullopt;
  return masked_gradients(*like_elements(arguments.subspan(1)), {arguments[6].toInt()}, arguments[9], *dtype);
}

/// (cotangent, input, weight, sizes of the bias, …, mask)
Results convolution_backward(Given arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const at::Tensor& weight = arguments[2].toTensor();
  if (!is_contiguous_or_images(input) || !is_contiguous_or_images(weight)) return std::nullopt;
  if (input.dim() > 4 || input.scalar_type() != weight.scalar_type()) return std::nullopt;
  const bool is_by_channels = !input.is_contiguous() || !weight.is_contiguous();
  const auto options =
      input.options().memory_format(is_by_channels ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  const auto is_asked = arguments.back().toBoolList();
  std::vector<at::Tensor> results(3);
  if (is_asked.get(0)) results[0] = at::empty(input.sizes(), options);
  if (is_asked.get(1)) results[1] = at::empty(weight.sizes(), options);
  if (is_asked.get(2)) results[2] = at::empty(arguments[3].toIntVector(), input.options());
  return results;
}

/// The kernel for CPUs leaves out what it does not need; that for metadata tells what the one for CUDA gives.
/// `differentiable`: what a backward needs is kept.
template <bool differentiable>
Results embedding_bag(Given arguments) {
  constexpr std::int64_t kSum = 0;
  constexpr std::int64_t kMax = 2;
  const at::Tensor& weight = arguments[0].toTensor();
  const at::Tensor& indices = arguments[1].toTensor();
  const at::Tensor& offsets = arguments[2].toTensor();
  const std::int64_t mode = arguments[4].toInt();
  if (!weight.is_cpu() || weight.dim() != 2 || indices.dim() != 1 || offsets.dim() != 1) return std::nullopt;
  const std::int64_t bags = offsets.size(0) - (arguments[7].toBool() ? 1 : 0);
  const bool is_of_floats =
      weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kHalf || weight.scalar_type() == at::kBFloat16;
  const bool has_scale = is_given(arguments[6]);
  const bool adds_rows = mode == kSum && is_of_floats && weight.stride(1) == 1 && arguments[8].toInt() < 0 &&
                         (!has_scale || arguments[6].toTensor().stride(0) == 1);
  const std::int64_t sizes = differentiable || mode != kSum ? bags : offsets.size(0);
  const at::Tensor chosen =
      mode == kMax ? at::empty({bags, weight.size(1)}, offsets.options()) : at::empty({sizes}, offsets.options());
  return {{at::empty({bags, weight.size(1)}, weight.options()),
           at::empty({adds_rows ? 0 : indices.size(0)}, offsets.options()), at::empty({sizes}, offsets.options()),
           chosen}};
}

/// Whether these are the weights of a recurrent layer, for `gates` times its hidden values: (of its input, of what
/// it remembers, biases of both).
bool are_recurrent_weights(std::span<const at::Tensor> weights, std::int64_t inputs, std::int64_t gates,
                           const at::Tensor& hidden) {
  const std::int64_t rows = gates * hidden.size(2);
  const std::vector<std::int64_t> expected[] = {{rows, inputs}, {rows, hidden.size(2)}, {rows}, {rows}};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].sizes() != expected[i] || weights[i].options().dtype() != hidden.options().dtype()) return false;
  }
  return true;
}

/// (sequences, hidden values, weights, has biases, layers, dropout, is training, bidirectional, batches come first), by
/// operations that go over the steps of the sequences: there may be thousands.
template <std::int64_t gates>
Results recurrent(Given arguments) {
  if (!arguments[2].isTensorList()) return std::nullopt;  // packed sequences
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& hidden = arguments[1].toTensor();
  const std::vector<at::Tensor> weights = arguments[2].toTensorVector();
  const std::size_t each = arguments[3].toBool() ? 4 : 2;
  const std::int64_t directions = arguments[7].toBool() ? 2 : 1;
  const std::int64_t layers = arguments[4].toInt();
  const bool has_batches_first = arguments[8].toBool();
  const bool is_known = input.is_cpu() && hidden.is_cpu() && is_float_or_double(input) && input.dim() == 3 &&
                        hidden.dim() == 3 && input.scalar_type() == hidden.scalar_type() && input.numel() != 0;
  if (!is_known || weights.size() != static_cast<std::size_t>(layers * directions) * each) return std::nullopt;
  const std::int64_t steps = input.size(has_batches_first ? 1 : 0);
  const std::int64_t batches = input.size(has_batches_first ? 0 : 1);
  const std::int64_t results = hidden.size(2) * directions;
  if (hidden.size(0) != layers * directions || hidden.size(1) != batches) return std::nullopt;
  for (std::size_t i = 0; i < weights.size(); i += each) {
    const bool is_first = i < each * static_cast<std::size_t>(directions);
    const std::span<const at::Tensor> of_layer(&weights[i], each);
    if (!are_recurrent_weights(of_layer, is_first ? input.size(2) : results, gates, hidden)) return std::nullopt;
  }
  const at::Tensor output = at::empty({steps, batches, results}, input.options());
  return {{has_batches_first ? output.transpose(0, 1) : output, at::empty(hidden.sizes(), hidden.options())}};
}

constexpr ResultRule kLayerRules[] = {
    {"aten::_adaptive_avg_pool2d", &adaptive_average},
    {"aten::_adaptive_avg_pool2d_backward", &like_contiguous<1>},
    {"aten::_embedding_bag", nullptr, &embedding_bag<true>},
    {"aten::_embedding_bag_forward_only", nullptr, &embedding_bag<false>},
    {"aten::_native_batch_norm_legit_functional", nullptr, &functional_batch_norm},
    {"aten::_prelu_kernel", &prelu},
    {"aten::_safe_softmax", &safe_softmax},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", nullptr, &attention},
    {"aten::_transformer_encoder_layer_fwd", &like_elements},
    {"aten::convolution", &convolution},
    {"aten::convolution_backward", nullptr, &convolution_backward},
    {"aten::embedding", &embedding},
    {"aten::embedding_dense_backward", &embedding_dense_backward},
    {"aten::gru", nullptr, &recurrent<3>},
    {"aten::native_batch_norm", nullptr, &batch_norm},
    {"aten::native_batch_norm_backward", nullptr, &batch_norm_backward},
    {"aten::native_group_norm", nullptr, &group_norm},
    {"aten::native_group_norm_backward", nullptr, &group_norm_backward},
    {"aten::native_layer_norm", nullptr, &layer_norm},
    {"aten::native_layer_norm_backward", nullptr, &layer_norm_backward},
    {"aten::rnn_relu", nullptr, &recurrent<1>},
    {"aten::rnn_tanh", nullptr, &recurrent<1>},
};

}  // namespace

std::span<const ResultRule> layer_rules() { return kLayerRules; }

}  // namespace thunder::tracer
