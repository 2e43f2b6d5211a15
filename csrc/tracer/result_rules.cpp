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
#include <initializer_list>
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

/// (self, dtype, layout, device, pinned, memory format): of that dtype, all else as it is.
std::optional<at::Tensor> allocated_like(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const bool is_alike = (arguments[2].isNone() || arguments[2].toLayout() == at::kStrided) &&
                        (arguments[3].isNone() || arguments[3].toDevice() == self.device()) &&
                        (arguments[4].isNone() || !arguments[4].toBool()) &&
                        (arguments[5].isNone() || arguments[5].toMemoryFormat() == at::MemoryFormat::Preserve);
  const auto like = is_alike ? like_elements(arguments) : std::nullopt;
  if (!like || arguments[1].isNone()) return like;
  return at::empty_strided(like->sizes(), like->strides(), like->options().dtype(arguments[1].toScalarType()));
}

/// What elementwise kernels give for contiguous tensors that broadcast.
std::optional<at::Tensor> of_contiguous(std::initializer_list<at::Tensor> tensors, const at::TensorOptions& options) {
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_contiguous()) return std::nullopt;
    sizes = at::infer_size(sizes, tensor.sizes());
  }
  return at::empty(sizes, options);
}

template <std::size_t place>
std::optional<at::Tensor> like_contiguous(Given arguments) {
  const at::Tensor& like = arguments[place].toTensor();
  return of_contiguous({like}, like.options());
}

/// With a weight for each channel, which has the sizes of what it broadcasts to.
std::optional<at::Tensor> prelu(Given arguments) {
  return of_contiguous({arguments[0].toTensor(), arguments[1].toTensor()}, arguments[0].toTensor().options());
}

/// (sizes, dtype, layout, device, pinned), without any but the sizes.
std::optional<at::Tensor> random_numbers(Given arguments) {
  const auto is_none = [](const IValue& option) { return option.isNone(); };
  if (arguments.size() != 5 || !std::ranges::all_of(arguments.subspan(1), is_none)) return std::nullopt;
  const std::vector<std::int64_t> sizes = arguments[0].toIntVector();
  if (std::ranges::any_of(sizes, [](std::int64_t size) { return size < 0; })) return std::nullopt;
  return at::empty(sizes, at::TensorOptions().dtype(at::get_default_dtype()).device(at::kCPU));
}

std::optional<at::Tensor> where(Given arguments) {
  if (arguments.size() != 3) return std::nullopt;
  if (arguments[0].toTensor().scalar_type() == at::kByte) return where_of_bytes(arguments);
  if (!arguments[1].isTensor() || !arguments[2].isTensor()) return std::nullopt;
  const at::Tensor& condition = arguments[0].toTensor();
  const at::Tensor& left = arguments[1].toTensor();
  const at::Tensor& right = arguments[2].toTensor();
  const bool is_known = condition.scalar_type() == at::kBool && left.scalar_type() == right.scalar_type() &&
                        condition.device() == left.device() && left.device() == right.device();
  return is_known ? of_contiguous({condition, left, right}, left.options()) : std::nullopt;
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

/// In place.
std::optional<at::Tensor> first_with_number(Given arguments) {
  return like_elements_with_number(arguments) ? std::optional(arguments[0].toTensor()) : std::nullopt;
}

/// An integer on the right of an integer, or as above.
std::optional<at::Tensor> remainder(Given arguments) {
  const at::Tensor& self = arguments[0].isTensor() ? arguments[0].toTensor() : at::Tensor();
  if (!self.defined()) return std::nullopt;
  if (self.scalar_type() != at::kLong || !arguments[1].isInt()) return like_elements_with_number(arguments);
  return self.is_contiguous() ? std::optional(at::empty(self.sizes(), self.options())) : std::nullopt;
}

/// Of integers, of which a dtype makes no others: (end), (start, end) or (start, end, step), then factory options.
std::optional<at::Tensor> range_of_integers(Given arguments) {
  constexpr std::size_t kOptions = 4;
  const Given numbers = arguments.first(arguments.size() - kOptions);
  const Given options = arguments.last(kOptions);
  const auto is_integer = [](const IValue& number) { return number.isInt(); };
  const auto is_none = [](const IValue& option) { return option.isNone(); };
  if (!std::ranges::all_of(numbers, is_integer) || !is_none(options[0]) || !is_none(options[1])) return std::nullopt;
  if (!is_none(options[3]) && options[3].toBool()) return std::nullopt;
  const std::int64_t start = numbers.size() > 1 ? numbers[0].toInt() : 0;
  const std::int64_t end = numbers[numbers.size() > 1 ? 1 : 0].toInt();
  const std::int64_t step = numbers.size() > 2 ? numbers[2].toInt() : 1;
  if (step < 1 || end < start) return std::nullopt;
  const at::Device device = options[2].isNone() ? at::Device(at::kCPU) : options[2].toDevice();
  return at::empty({(end - start + step - 1) / step}, at::TensorOptions().dtype(at::kLong).device(device));
}

std::optional<at::Tensor> repeated(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  std::vector<std::int64_t> sizes = arguments[1].toIntVector();
  const std::ptrdiff_t added = std::ssize(sizes) - self.dim();
  if (added < 0 || std::ranges::any_of(sizes, [](std::int64_t count) { return count < 0; })) return std::nullopt;
  for (std::int64_t i = 0; i < self.dim(); ++i) sizes[added + i] *= self.size(i);
  return at::empty(sizes, self.options());
}

std::optional<at::Tensor> padded_with_number(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const std::vector<std::int64_t> pads = arguments[1].toIntVector();
  if (!self.is_contiguous() || pads.size() % 2 != 0 || std::ssize(pads) > 2 * self.dim()) return std::nullopt;
  std::vector<std::int64_t> sizes = self.sizes().vec();
  for (std::size_t i = 0; i < pads.size(); i += 2) {
    std::int64_t& size = sizes[sizes.size() - 1 - i / 2];
    size += pads[i] + pads[i + 1];
    if (size < 1) return std::nullopt;
  }
  return at::empty(sizes, self.options());
}

std::optional<at::Tensor> adaptive_average(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const std::vector<std::int64_t> pooled = arguments[1].toIntVector();
  const bool is_known = (self.dim() == 3 || self.dim() == 4) && pooled.size() == 2 && pooled[0] > 0 && pooled[1] > 0;
  if (!is_known || !is_float_or_double(self) || !self.is_contiguous() || self.numel() == 0) return std::nullopt;
  std::vector<std::int64_t> sizes = self.sizes().vec();
  std::ranges::copy(pooled, sizes.end() - 2);
  return at::empty(sizes, self.options());
}

/// Over all elements: (self, dtype).
std::optional<at::Tensor> mean(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (arguments.size() != 2 || !arguments[1].isNone() || !self.is_floating_point()) return std::nullopt;
  return at::empty({}, self.options());
}

/// (self, dim, keepdim)
std::optional<at::Tensor> logsumexp(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (!is_float_or_double(self) || !arguments[1].isIntList()) return std::nullopt;
  return at::empty(at::mean(self, arguments[1].toIntVector(), arguments[2].toBool()).sizes(), self.options());
}

std::optional<at::Tensor> safe_softmax(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (!is_float_or_double(self) || !self.is_contiguous() || !arguments[2].isNone()) return std::nullopt;
  return at::empty(self.sizes(), self.options());
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
  const bool is_number = (arguments[2].isInt() && self.scalar_type() == at::kLong) ||
                         (arguments[2].isScalar() && !arguments[2].isComplexDouble() && is_float_or_double(self));
  const bool is_in_order = self.is_contiguous() || self.dim() == 1;
  if (!is_number || !is_in_order || mask.scalar_type() != at::kBool || mask.device() != self.device()) {
    return std::nullopt;
  }
  if (!at::is_expandable_to(mask.sizes(), self.sizes())) return std::nullopt;
  return at::empty(self.sizes(), self.options());
}

/// Gradients of what was selected or sliced: (cotangent, sizes, …).
std::optional<at::Tensor> of_given_sizes(Given arguments) {
  if (!arguments[1].isIntList()) return std::nullopt;
  return at::empty(arguments[1].toIntVector(), arguments[0].toTensor().options());
}

/// Of an activation: (cotangent, input, …), laid out as comparisons of the two are.
std::optional<at::Tensor> like_cotangent(Given arguments) {
  const at::Tensor& cotangent = arguments[0].toTensor();
  const at::Tensor& input = arguments[1].toTensor();
  if (cotangent.sizes() != input.sizes() || cotangent.scalar_type() != input.scalar_type()) return std::nullopt;
  const at::Tensor compared = at::eq(cotangent, input);
  return at::empty_strided(compared.sizes(), compared.strides(), input.options());
}

/// Of a loss: (cotangent, input, target, …).
std::optional<at::Tensor> like_input_of_loss(Given arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const at::Tensor& target = arguments[2].toTensor();
  const bool are_alike = input.sizes() == target.sizes() && input.is_contiguous() && target.is_contiguous() &&
                         input.scalar_type() == target.scalar_type() && input.device() == target.device() &&
                         arguments[0].toTensor().scalar_type() == input.scalar_type() &&
                         (arguments[0].toTensor().dim() == 0 || arguments[0].toTensor().strides() == input.strides());
  return are_alike && is_float_or_double(input) ? std::optional(at::empty(input.sizes(), input.options()))
                                                : std::nullopt;
}

/// A loss by itself: (input, target, …), with its reduction at `place`.
template <std::size_t place>
std::optional<at::Tensor> loss(Given arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& target = arguments[1].toTensor();
  const bool are_alike = input.sizes() == target.sizes() && input.is_contiguous() && target.is_contiguous() &&
                         input.scalar_type() == target.scalar_type() && input.device() == target.device();
  for (std::size_t i = 2; i < place; ++i) {
    if (!arguments[i].isNone() && arguments[i].toTensor().defined()) return std::nullopt;  // weights
  }
  if (!are_alike || !is_float_or_double(input)) return std::nullopt;
  const bool is_reduced = arguments[place].toInt() != 0;
  return at::empty(is_reduced ? at::IntArrayRef() : input.sizes(), input.options());
}

/// (cotangent, indices, rows of the table, …)
std::optional<at::Tensor> embedding_dense_backward(Given arguments) {
  const at::Tensor& cotangent = arguments[0].toTensor();
  if (!is_float_or_double(cotangent) || cotangent.dim() == 0) return std::nullopt;
  return at::empty({arguments[2].toInt(), cotangent.size(-1)}, cotangent.options());
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
  const bool is_transposed = arguments[6].toBool();
  if (!is_known(input) || !is_known(weight)) return std::nullopt;
  const bool is_channels_last = dims == 4 && at::native::mkldnn_conv_use_channels_last(input, weight);
  if (!input.is_contiguous() && !is_channels_last) return std::nullopt;
  if ((dims != 3 && dims != 4) || weight.dim() != dims || groups < 1 || weight.size(0) % groups != 0) {
    return std::nullopt;
  }
  const std::int64_t channels = weight.size(1) * groups;  // of the larger side of the filter's
  if (input.size(1) != (is_transposed ? weight.size(0) : channels)) return std::nullopt;
  if (has_bias && (!is_known(arguments[2].toTensor()) || arguments[2].toTensor().dim() != 1 ||
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

/// With new running statistics, too.
Results functional_batch_norm(Given arguments) {
  Results results = batch_norm(arguments);
  for (std::size_t i = 3; i < 5 && results; ++i) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) return std::nullopt;
    results->push_back(at::empty_like(arguments[i].toTensor()));
  }
  return results;
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

/// Gradients of an input and of what has these sizes, of which a mask leaves some out.
Results masked_gradients(const at::Tensor& of_input, c10::IntArrayRef sizes, const IValue& mask) {
  std::vector<at::Tensor> results{of_input, at::empty(sizes, of_input.options()), at::empty(sizes, of_input.options())};
  const auto is_asked = mask.toBoolList();
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!is_asked.get(i)) results[i] = at::Tensor();
  }
  return results;
}

/// Of a norm: what its gradients lie like where cotangent and input do so, too.
bool lies_like(const at::Tensor& cotangent, const at::Tensor& input) {
  return is_contiguous_or_images(input) && cotangent.scalar_type() == input.scalar_type() &&
         cotangent.sizes() == input.sizes() && cotangent.strides() == input.strides();
}

/// (cotangent, input, normalized sizes, mean, reciprocal deviation, weight, bias, mask)
Results layer_norm_backward(Given arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const auto is_asked_of_none = [&](std::size_t i) {
    const bool is_given = arguments[i].isTensor() && arguments[i].toTensor().defined();
    return arguments[7].toBoolList().get(i - 4) && !is_given;
  };
  const bool is_known = arguments[0].toTensor().sizes() == input.sizes() && input.device().is_cpu() &&
                        arguments[0].toTensor().scalar_type() == input.scalar_type() && is_float_or_double(input);
  if (!is_known || input.numel() == 0 || is_asked_of_none(5) || is_asked_of_none(6)) return std::nullopt;
  if (!is_weight_of(input, arguments[5]) || !is_weight_of(input, arguments[6])) {
    return std::nullopt;
  }
  return masked_gradients(at::empty(input.sizes(), input.options()), arguments[2].toIntVector(), arguments[7]);
}

/// (cotangent, input, weight, running mean, running variance, mean, reciprocal deviation, training, epsilon, mask)
Results batch_norm_backward(Given arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  if (!lies_like(arguments[0].toTensor(), input) || input.dim() < 2) return std::nullopt;
  for (const std::size_t i : {2, 3, 4, 5, 6}) {
    if (!is_weight_of(input, arguments[i])) return std::nullopt;
  }
  return masked_gradients(*like_elements(arguments.subspan(1)), {input.size(1)}, arguments[9]);
}

/// (cotangent, input, mean, reciprocal deviation, weight, examples, channels, elements of each, groups, mask)
Results group_norm_backward(Given arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  if (!lies_like(arguments[0].toTensor(), input) || !is_weight_of(input, arguments[4])) return std::nullopt;
  return masked_gradients(*like_elements(arguments.subspan(1)), {arguments[6].toInt()}, arguments[9]);
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

struct ResultsRule {
  std::string_view name;
  Results (*results)(Given arguments);
};

constexpr ResultsRule kResultsRules[] = {
    {"aten::_scaled_dot_product_flash_attention_for_cpu", &attention},
    {"aten::_native_batch_norm_legit_functional", &functional_batch_norm},
    {"aten::convolution_backward", &convolution_backward},
    {"aten::native_batch_norm", &batch_norm},
    {"aten::native_batch_norm_backward", &batch_norm_backward},
    {"aten::native_group_norm", &group_norm},
    {"aten::native_group_norm_backward", &group_norm_backward},
    {"aten::native_layer_norm", &layer_norm},
    {"aten::native_layer_norm_backward", &layer_norm_backward},
    {"aten::var_mean", &both_reduced},
};

struct ResultRule {
  std::string_view name;
  std::optional<at::Tensor> (*result)(Given arguments);
};

constexpr ResultRule kResultRules[] = {
    {"aten::_adaptive_avg_pool2d", &adaptive_average},
    {"aten::_adaptive_avg_pool2d_backward", &like_contiguous<1>},
    {"aten::_ctc_loss_backward", &like_log_probabilities},
    {"aten::_prelu_kernel", &prelu},
    {"aten::_safe_softmax", &safe_softmax},
    {"aten::_transformer_encoder_layer_fwd", &like_elements},
    {"aten::abs", &like_elements},
    {"aten::add", &like_elements_with_number},
    {"aten::arange", &range_of_integers},
    {"aten::binary_cross_entropy", &loss<3>},
    {"aten::binary_cross_entropy_backward", &like_input_of_loss},
    {"aten::binary_cross_entropy_with_logits", &loss<4>},
    {"aten::celu", &like_elements},
    {"aten::constant_pad_nd", &padded_with_number},
    {"aten::convolution", &convolution},
    {"aten::div", &like_elements_with_number},
    {"aten::div_", &first_with_number},
    {"aten::embedding", &embedding},
    {"aten::embedding_dense_backward", &embedding_dense_backward},
    {"aten::empty_like", &allocated_like},
    {"aten::fill", &like_elements},
    {"aten::flip", &like_elements},
    {"aten::floor_divide", &like_quotient},
    {"aten::glu_backward", &like_contiguous<1>},
    {"aten::hardswish", &like_elements},
    {"aten::hardswish_backward", &like_cotangent},
    {"aten::hardtanh", &like_elements},
    {"aten::hardtanh_backward", &like_cotangent},
    {"aten::huber_loss", &loss<2>},
    {"aten::huber_loss_backward", &like_input_of_loss},
    {"aten::index_fill", &like_first},
    {"aten::index_put", &like_elements},
    {"aten::isin", &is_number_in},
    {"aten::linspace", &range_between},
    {"aten::logical_and", &like_comparison},
    {"aten::logical_or", &like_comparison},
    {"aten::logical_xor", &like_comparison},
    {"aten::logspace", &range_between},
    {"aten::logsumexp", &logsumexp},
    {"aten::masked_fill", &like_filled},
    {"aten::mean", &mean},
    {"aten::mish", &like_elements},
    {"aten::mish_backward", &like_cotangent},
    {"aten::mse_loss_backward", &like_input_of_loss},
    {"aten::mul", &like_elements_with_number},
    {"aten::nonzero_static", &nonzero_static},
    {"aten::one_hot", &one_hot},
    {"aten::rand", &random_numbers},
    {"aten::randn", &random_numbers},
    {"aten::relu", &like_elements},
    {"aten::remainder", &remainder},
    {"aten::repeat", &repeated},
    {"aten::roll", &like_contiguous<0>},
    {"aten::select_backward", &of_given_sizes},
    {"aten::select_scatter", &like_contiguous<0>},
    {"aten::slice_backward", &of_given_sizes},
    {"aten::slice_scatter", &like_contiguous<0>},
    {"aten::smooth_l1_loss_backward", &like_input_of_loss},
    {"aten::stack", &stacked},
    {"aten::std", &reduced},
    {"aten::sub", &like_elements_with_number},
    {"aten::var", &reduced},
    {"aten::view_copy", &view_copy},
    {"aten::where", &where},
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
