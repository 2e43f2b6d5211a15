#include "tracer/result_rules.h"

#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace thunder::tracer {
namespace {

using c10::IValue;
using Given = std::span<const IValue>;

std::optional<at::Tensor> like_log_probabilities(Given arguments) {
  return at::empty_like(arguments[1].toTensor(), at::TensorOptions(), at::MemoryFormat::Contiguous);
}

/// The kernel checks that the classes are in range. Without a number of classes the shape follows from data.
std::optional<at::Tensor> one_hot(Given arguments) {
  const at::Tensor& classes = arguments[0].toTensor();
  const std::int64_t count = arguments[1].toInt();
  if (count < 0 || classes.scalar_type() != at::kLong) return std::nullopt;
  std::vector<std::int64_t> sizes = classes.sizes().vec();
  sizes.push_back(count);
  return at::empty(sizes, classes.options());
}

std::optional<at::Tensor> like_first(Given arguments) { return at::empty_like(arguments[0].toTensor()); }

/// Of a number among tensors; the meta kernel takes the tensors' shape.
std::optional<at::Tensor> is_number_in(Given arguments) {
  if (arguments[0].isTensor()) return std::nullopt;
  return at::empty({}, arguments[1].toTensor().options().dtype(at::kBool));
}

/// Between complex numbers in tensors; the meta kernel takes them for real ones. The last four arguments are factory
/// options.
std::optional<at::Tensor> range_between(Given arguments) {
  constexpr std::size_t kOptions = 4;
  const IValue& dtype = arguments[arguments.size() - kOptions];
  const auto is_complex = [](const IValue& end) { return end.isTensor() && end.toTensor().is_complex(); };
  if (!dtype.isNone() || (!is_complex(arguments[0]) && !is_complex(arguments[1]))) return std::nullopt;
  const at::Tensor& like = (is_complex(arguments[0]) ? arguments[0] : arguments[1]).toTensor();
  return at::empty({arguments[2].toInt()},
                   like.options().dtype(c10::toComplexType(at::typeMetaToScalarType(at::get_default_dtype()))));
}

/// Laid out as comparisons are; the meta kernel follows the first argument, of whatever shape.
std::optional<at::Tensor> like_comparison(Given arguments) {
  return at::eq(arguments[0].toTensor(), arguments[1].toTensor());
}

/// Likewise.
std::optional<at::Tensor> like_quotient(Given arguments) {
  if (!arguments[1].isTensor()) return std::nullopt;
  return at::div(arguments[0].toTensor(), arguments[1].toTensor(), "floor");
}

/// The meta kernel lays it out as the one for CUDA does.
std::optional<at::Tensor> nonzero_static(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (!self.device().is_cpu()) return std::nullopt;
  return at::empty({arguments[1].toInt(), self.dim()}, self.options().dtype(at::kLong));
}

/// The kernel copies what is no view; the meta kernel wants one.
std::optional<at::Tensor> view_copy(Given arguments) {
  if (!arguments[1].isIntList()) return std::nullopt;
  const at::Tensor& self = arguments[0].toTensor();
  return at::empty(at::infer_size(arguments[1].toIntVector(), self.numel()), self.options());
}

/// A condition of bytes, which kernels still take and the meta kernel refuses.
std::optional<at::Tensor> where_of_bytes(Given arguments) {
  if (arguments.size() != 3 || arguments[0].toTensor().scalar_type() != at::kByte) return std::nullopt;
  const at::Tensor condition = arguments[0].toTensor().to(at::kBool);
  const IValue& left = arguments[1];
  const IValue& right = arguments[2];
  if (left.isTensor() && right.isTensor()) return at::where(condition, left.toTensor(), right.toTensor());
  if (left.isTensor()) return at::where(condition, left.toTensor(), right.toScalar());
  if (right.isTensor()) return at::where(condition, left.toScalar(), right.toTensor());
  return at::where(condition, left.toScalar(), right.toScalar());
}

// Some meta kernels exist in Python only. The first that runs imports SymPy, or torch._dynamo: a second or more, for
// which a network's first answer shall not wait. The rules from here on stand for those that networks meet, in the
// cases in which it is plain what they give.

/// As elementwise kernels allocate a result of the same dtype.
std::optional<at::Tensor> like_elements(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (!self.is_floating_point()) return std::nullopt;
  std::vector<std::int64_t> strides = self.strides().vec();
  if (!self.is_non_overlapping_and_dense()) strides = at::infer_dense_strides(self.sizes(), self.strides());
  return at::empty_strided(self.sizes(), strides, self.options());
}

/// The factory options and the memory format that follow the tensor must be its own.
std::optional<at::Tensor> allocated_like(Given arguments) {
  const auto options = arguments.subspan(1);
  return std::ranges::all_of(options, [](const IValue& option) { return option.isNone(); }) ? like_elements(arguments)
                                                                                            : std::nullopt;
}

/// A real number on the right of an operator keeps the tensor's dtype.
std::optional<at::Tensor> like_elements_with_number(Given arguments) {
  const bool is_real = arguments[1].isScalar() && !arguments[1].isComplexDouble();
  return is_real ? like_elements(arguments) : std::nullopt;
}

bool is_float_or_double(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
}

/// Of which results of norms on the CPU have the strides.
bool is_contiguous_or_images(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && is_float_or_double(tensor) &&
         (tensor.is_contiguous() || tensor.is_contiguous(at::MemoryFormat::ChannelsLast));
}

std::optional<at::Tensor> stacked(Given arguments) {
  const std::vector<at::Tensor> tensors = arguments[0].toTensorVector();
  if (tensors.empty()) return std::nullopt;
  const at::Tensor& first = tensors.front();
  const auto is_alike = [&](const at::Tensor& each) {
    return each.is_contiguous() && each.sizes() == first.sizes() && each.scalar_type() == first.scalar_type() &&
           each.device() == first.device();
  };
  const std::int64_t dim = arguments[1].toInt() < 0 ? arguments[1].toInt() + first.dim() + 1 : arguments[1].toInt();
  if (!std::ranges::all_of(tensors, is_alike) || dim < 0 || dim > first.dim()) return std::nullopt;
  std::vector<std::int64_t> sizes = first.sizes().vec();
  sizes.insert(sizes.begin() + dim, static_cast<std::int64_t>(tensors.size()));
  return at::empty(sizes, first.options());
}

std::optional<at::Tensor> like_filled(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& mask = arguments[1].toTensor();
  const bool is_number = arguments[2].isScalar() && !arguments[2].isComplexDouble();
  if (!is_number || !is_float_or_double(self) || !self.is_contiguous() || mask.scalar_type() != at::kBool ||
      mask.device() != self.device()) {
    return std::nullopt;
  }
  return at::is_expandable_to(mask.sizes(), self.sizes()) ? like_elements(arguments) : std::nullopt;
}

std::optional<at::Tensor> embedding(Given arguments) {
  const at::Tensor& weight = arguments[0].toTensor();
  const at::Tensor& indices = arguments[1].toTensor();
  const bool is_index = indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt;
  if (weight.dim() != 2 || !is_index || indices.device() != weight.device()) return std::nullopt;
  std::vector<std::int64_t> sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  return at::empty(sizes, weight.options());
}

/// Of images and sequences of float32 on the CPU; `result_as_of_kernel` knows their memory format.
std::optional<at::Tensor> convolution(Given arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& weight = arguments[1].toTensor();
  const bool has_bias = arguments[2].isTensor() && arguments[2].toTensor().defined();
  const auto is_known = [&](const at::Tensor& tensor) {
    return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat;
  };
  const std::int64_t dims = input.dim();
  const std::int64_t groups = arguments[8].toInt();
  if (!is_known(input) || !is_known(weight) || arguments[6].toBool()) return std::nullopt;
  const bool is_channels_last = dims == 4 && at::native::mkldnn_conv_use_channels_last(input, weight);
  if (!input.is_contiguous() && !is_channels_last) return std::nullopt;
  if ((dims != 3 && dims != 4) || weight.dim() != dims || groups < 1 || input.size(1) != weight.size(1) * groups ||
      weight.size(0) % groups != 0) {
    return std::nullopt;
  }
  if (has_bias &&
      (!is_known(arguments[2].toTensor()) || arguments[2].toTensor().sizes() != weight.sizes().slice(0, 1))) {
    return std::nullopt;
  }
  const auto stride = arguments[3].toIntVector();
  const auto padding = arguments[4].toIntVector();
  const auto dilation = arguments[5].toIntVector();
  for (const auto& [list, least] : {std::pair(&stride, 1), std::pair(&padding, 0), std::pair(&dilation, 1)}) {
    const bool is_valid = std::ranges::all_of(*list, [least](std::int64_t number) { return number >= least; });
    if (std::ssize(*list) != dims - 2 || !is_valid) return std::nullopt;
  }
  const auto sizes = at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  const bool has_elements = std::ranges::all_of(sizes, [](std::int64_t size) { return size > 0; });
  for (std::int64_t i = 2; i < dims; ++i) {
    if (input.size(i) + 2 * padding[i - 2] < dilation[i - 2] * (weight.size(i) - 1) + 1) return std::nullopt;
  }
  return has_elements ? std::optional(at::empty(sizes, input.options())) : std::nullopt;
}

/// Of variances and deviations: (self, dim, correction, keepdim). What takes a flag instead of a correction is
/// composite.
std::optional<at::Tensor> reduced(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (arguments.size() != 4 || !is_float_or_double(self) || !arguments[3].isBool()) return std::nullopt;
  if (arguments[2].isBool() || (!arguments[1].isNone() && !arguments[1].isIntList())) return std::nullopt;
  const std::vector<std::int64_t> dims =
      arguments[1].isNone() ? std::vector<std::int64_t>() : arguments[1].toIntVector();
  return at::empty(at::mean(self, dims, arguments[3].toBool()).sizes(), self.options());
}

using Results = std::optional<std::vector<at::Tensor>>;

Results both_reduced(Given arguments) {
  const auto result = reduced(arguments);
  return result ? Results({*result, at::empty(result->sizes(), result->options())}) : std::nullopt;
}

/// The argument is not there, or of the dtype of `self`.
bool is_weight_of(const at::Tensor& self, const IValue& argument) {
  return argument.isNone() || !argument.toTensor().defined() || argument.toTensor().scalar_type() == self.scalar_type();
}

/// What a norm gives: `result`, mean and reciprocal deviation.
Results with_statistics(const at::Tensor& result, c10::IntArrayRef sizes) {
  return {{result, at::empty(sizes, result.options()), at::empty(sizes, result.options())}};
}

Results layer_norm(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const std::vector<std::int64_t> normalized = arguments[1].toIntVector();
  const std::int64_t kept = self.dim() - std::ssize(normalized);
  if (!is_float_or_double(self) || kept < 0 || self.sizes().slice(kept) != normalized) return std::nullopt;
  for (const std::size_t i : {2, 3}) {
    const bool is_given = arguments[i].isTensor() && arguments[i].toTensor().defined();
    if (!is_weight_of(self, arguments[i]) || (is_given && arguments[i].toTensor().sizes() != normalized)) {
      return std::nullopt;
    }
  }
  std::vector<std::int64_t> rows = self.sizes().vec();
  std::fill(rows.begin() + kept, rows.end(), 1);
  return with_statistics(at::empty(self.sizes(), self.options()), rows);
}

Results batch_norm(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (!is_contiguous_or_images(self) || self.dim() < 2) return std::nullopt;
  for (const std::size_t i : {1, 2, 3, 4}) {
    if (!is_weight_of(self, arguments[i])) return std::nullopt;
  }
  return with_statistics(*like_elements(arguments), {arguments[5].toBool() ? self.size(1) : 0});
}

Results group_norm(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (!is_contiguous_or_images(self)) return std::nullopt;
  if (!is_weight_of(self, arguments[1]) || !is_weight_of(self, arguments[2])) return std::nullopt;
  return with_statistics(*like_elements(arguments), {arguments[3].toInt(), arguments[6].toInt()});
}

/// Result, and the logarithm of each row's sum.
Results attention(Given arguments) {
  const at::Tensor& query = arguments[0].toTensor();
  if (!is_float_or_double(query) || query.dim() != 4) return std::nullopt;
  const std::int64_t heads = query.size(1);
  const std::int64_t rows = query.size(2);
  const at::Tensor sums = at::empty_strided({query.size(0), heads, rows},
                                            {heads * rows, 1, std::max<std::int64_t>(heads, 1)}, query.options());
  return {{*like_elements(arguments), sums}};
}

struct ResultsRule {
  std::string_view name;
  Results (*results)(Given arguments);
};

constexpr ResultsRule kResultsRules[] = {
    {"aten::_scaled_dot_product_flash_attention_for_cpu", &attention},
    {"aten::native_batch_norm", &batch_norm},
    {"aten::native_group_norm", &group_norm},
    {"aten::native_layer_norm", &layer_norm},
    {"aten::var_mean", &both_reduced},
};

struct ResultRule {
  std::string_view name;
  std::optional<at::Tensor> (*result)(Given arguments);
};

constexpr ResultRule kResultRules[] = {
    {"aten::_ctc_loss_backward", &like_log_probabilities},
    {"aten::_transformer_encoder_layer_fwd", &like_elements},
    {"aten::abs", &like_elements},
    {"aten::add", &like_elements_with_number},
    {"aten::convolution", &convolution},
    {"aten::div", &like_elements_with_number},
    {"aten::embedding", &embedding},
    {"aten::empty_like", &allocated_like},
    {"aten::floor_divide", &like_quotient},
    {"aten::hardswish", &like_elements},
    {"aten::hardtanh", &like_elements},
    {"aten::index_fill", &like_first},
    {"aten::isin", &is_number_in},
    {"aten::linspace", &range_between},
    {"aten::logical_and", &like_comparison},
    {"aten::logical_or", &like_comparison},
    {"aten::logical_xor", &like_comparison},
    {"aten::logspace", &range_between},
    {"aten::masked_fill", &like_filled},
    {"aten::mul", &like_elements_with_number},
    {"aten::nonzero_static", &nonzero_static},
    {"aten::one_hot", &one_hot},
    {"aten::relu", &like_elements},
    {"aten::stack", &stacked},
    {"aten::std", &reduced},
    {"aten::sub", &like_elements_with_number},
    {"aten::var", &reduced},
    {"aten::view_copy", &view_copy},
    {"aten::where", &where_of_bytes},
    {"aten::zeros_like", &allocated_like},
};

}  // namespace

std::optional<std::vector<IValue>> results_by_rule(const c10::OperatorHandle& op, Given arguments) {
  const std::string& name = op.operator_name().name;
  if (const auto* row = std::ranges::find(kResultRules, name, &ResultRule::name); row != std::end(kResultRules)) {
    if (auto result = row->result(arguments)) return {{IValue(*std::move(result))}};
  }
  if (const auto* row = std::ranges::find(kResultsRules, name, &ResultsRule::name); row != std::end(kResultsRules)) {
    if (auto results = row->results(arguments)) return {{results->begin(), results->end()}};
  }
  return std::nullopt;
}

IValue result_as_of_kernel(const c10::OperatorHandle& op, Given arguments, IValue result) {
  const std::string& name = op.operator_name().name;
  if (name == "aten::native_dropout") {  // the meta kernel gives the input itself where nothing is dropped
    const at::Tensor& input = arguments[0].toTensor();
    return result.toTensor().is_same(input) ? at::empty_like(input) : result;
  }
  if (name != "aten::convolution" && name != "aten::_convolution") return result;
  const at::Tensor& image = arguments[0].toTensor();
  const bool is_of_images = image.is_cpu() && image.dim() == 4;
  if (!is_of_images || !at::native::mkldnn_conv_use_channels_last(image, arguments[1].toTensor())) return result;
  return at::empty_like(result.toTensor(), at::TensorOptions(), at::MemoryFormat::ChannelsLast);
}

}  // namespace thunder::tracer
