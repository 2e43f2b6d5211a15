// Elementwise operations, reductions, losses, and what changes or makes shapes.
#include <ATen/ExpandUtils.h>
#include <ATen/ScalarOps.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "tracer/result_rule.h"

namespace thunder::tracer {

using c10::IValue;

Result like_elements(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (!self.is_floating_point()) return std::nullopt;
  std::vector<std::int64_t> strides = self.strides().vec();
  if (!self.is_non_overlapping_and_dense()) strides = at::infer_dense_strides(self.sizes(), self.strides());
  return at::empty_strided(self.sizes(), strides, self.options());
}

bool is_float_or_double(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
}

Result of_contiguous(std::initializer_list<at::Tensor> tensors, const at::TensorOptions& options) {
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_contiguous()) return std::nullopt;
    sizes = at::infer_size(sizes, tensor.sizes());
  }
  return at::empty(sizes, options);
}

namespace {

/// As kernels that go through the elements of one tensor allocate their result: a dimension of one index has the stride
/// that its place in the order of the others gives it.
Result of_elements_alone(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (!self.is_floating_point()) return std::nullopt;
  for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    if (self.is_contiguous(format)) return at::empty(self.sizes(), self.options().memory_format(format));
  }
  return like_elements(arguments);
}

/// A number minus a tensor: (self, number, alpha). The meta kernel lays it out as if there were no number.
Result subtracted_from_number(Given arguments) {
  if (!arguments[1].isInt() && !arguments[1].isDouble()) return std::nullopt;
  const at::Tensor number = c10::scalar_to_tensor(arguments[1].toScalar());
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return at::sub(number, arguments[0].toTensor(), arguments[2].toScalar());
}

/// A condition of bytes, which kernels still take and the meta kernel refuses.
Result where_of_bytes(Given arguments) {
  const at::Tensor condition = arguments[0].toTensor().to(at::kBool);
  const IValue& left = arguments[1];
  const IValue& right = arguments[2];
  if (left.isTensor() && right.isTensor()) return at::where(condition, left.toTensor(), right.toTensor());
  if (left.isTensor()) return at::where(condition, left.toTensor(), right.toScalar());
  if (right.isTensor()) return at::where(condition, left.toScalar(), right.toTensor());
  return at::where(condition, left.toScalar(), right.toScalar());
}

/// (self, dtype, layout, device, pinned, memory format): of that dtype, all else as it is.
Result allocated_like(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const bool is_alike = (arguments[2].isNone() || arguments[2].toLayout() == at::kStrided) &&
                        (arguments[3].isNone() || arguments[3].toDevice() == self.device()) &&
                        (arguments[4].isNone() || !arguments[4].toBool()) &&
                        (arguments[5].isNone() || arguments[5].toMemoryFormat() == at::MemoryFormat::Preserve);
  const auto like = is_alike ? like_elements(arguments) : std::nullopt;
  if (!like || arguments[1].isNone()) return like;
  return at::empty_strided(like->sizes(), like->strides(), like->options().dtype(arguments[1].toScalarType()));
}

/// (sizes, dtype, layout, device, pinned), without any but the sizes.
Result random_numbers(Given arguments) {
  if (arguments.size() != 5 || !std::ranges::all_of(arguments.subspan(1), &IValue::isNone)) return std::nullopt;
  const std::vector<std::int64_t> sizes = arguments[0].toIntVector();
  if (std::ranges::any_of(sizes, [](std::int64_t size) { return size < 0; })) return std::nullopt;
  return at::empty(sizes, at::TensorOptions().dtype(at::get_default_dtype()).device(at::kCPU));
}

Result where(Given arguments) {
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
Result like_elements_with_number(Given arguments) {
  const bool is_real = arguments[1].isScalar() && !arguments[1].isComplexDouble();
  return is_real ? like_elements(arguments) : std::nullopt;
}

/// In place.
Result first_with_number(Given arguments) {
  return like_elements_with_number(arguments) ? std::optional(arguments[0].toTensor()) : std::nullopt;
}

/// An integer on the right of an integer, or as above.
Result remainder(Given arguments) {
  if (!is_given(arguments[0])) return std::nullopt;
  const bool are_integers = arguments[0].toTensor().scalar_type() == at::kLong && arguments[1].isInt();
  return are_integers ? like_contiguous<0>(arguments) : like_elements_with_number(arguments);
}

/// A range of integers, if no dtype is given: (end), (start, end) or (start, end, step), then factory options.
Result range_of_integers(Given arguments) {
  constexpr std::size_t kOptions = 4;
  const Given numbers = arguments.first(arguments.size() - kOptions);
  const Given options = arguments.last(kOptions);
  if (!std::ranges::all_of(numbers, &IValue::isInt) || !options[0].isNone() || !options[1].isNone()) {
    return std::nullopt;
  }
  if (!options[3].isNone() && options[3].toBool()) return std::nullopt;
  const std::int64_t start = numbers.size() > 1 ? numbers[0].toInt() : 0;
  const std::int64_t end = numbers[numbers.size() > 1 ? 1 : 0].toInt();
  const std::int64_t step = numbers.size() > 2 ? numbers[2].toInt() : 1;
  if (step < 1 || end < start) return std::nullopt;
  const at::Device device = options[2].isNone() ? at::Device(at::kCPU) : options[2].toDevice();
  return at::empty({(end - start + step - 1) / step}, at::TensorOptions().dtype(at::kLong).device(device));
}

Result repeated(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  std::vector<std::int64_t> sizes = arguments[1].toIntVector();
  const std::ptrdiff_t added = std::ssize(sizes) - self.dim();
  if (added < 0 || std::ranges::any_of(sizes, [](std::int64_t count) { return count < 0; })) return std::nullopt;
  for (std::int64_t i = 0; i < self.dim(); ++i) sizes[added + i] *= self.size(i);
  return at::empty(sizes, self.options());
}

Result padded_with_number(Given arguments) {
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

/// Over all elements: (self, dtype).
Result mean(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (arguments.size() != 2 || !arguments[1].isNone() || !self.is_floating_point()) return std::nullopt;
  return at::empty({}, self.options());
}

at::Tensor reduced_over(const at::Tensor& self, const IValue& dims, const IValue& keeps) {
  return at::empty(at::mean(self, dims.toIntVector(), keeps.toBool()).sizes(), self.options());
}

/// (self, dim, keepdim)
Result logsumexp(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (!is_float_or_double(self) || !arguments[1].isIntList()) return std::nullopt;
  return reduced_over(self, arguments[1], arguments[2]);
}

Result stacked(Given arguments) {
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

/// Raises what PyTorch's kernels raise for a number that the dtype cannot hold: in a fusion nobody would ask.
void require_representable(const c10::Scalar& number, at::ScalarType dtype) {
#define THUNDER_CONVERT(type, name)       \
  case at::ScalarType::name:              \
    static_cast<void>(number.to<type>()); \
    break;
  switch (dtype) {
    AT_FORALL_SCALAR_TYPES_AND3(Bool, Half, BFloat16, THUNDER_CONVERT)
    default:
      break;
  }
#undef THUNDER_CONVERT
}

Result like_filled(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (arguments[2].isScalar()) require_representable(arguments[2].toScalar(), self.scalar_type());
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

/// (self, dim, index, source, …): the meta kernel reads the first row of the source, also where it has none.
Result with_no_rows_added(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& source = arguments[3].toTensor();
  const at::Tensor& index = arguments[2].toTensor();
  if (index.numel() != 0 || index.dim() != 1 || index.scalar_type() != at::kLong) return std::nullopt;
  if (source.dim() != self.dim() || self.dim() == 0) return std::nullopt;
  std::vector<std::int64_t> sizes = self.sizes().vec();
  sizes[at::maybe_wrap_dim(arguments[1].toInt(), self.dim())] = 0;
  if (source.sizes() != sizes || source.scalar_type() != self.scalar_type()) return std::nullopt;
  return at::empty(self.sizes(), self.options());
}

/// Gradients of what was selected or sliced: (cotangent, sizes, …).
Result of_given_sizes(Given arguments) {
  if (!arguments[1].isIntList()) return std::nullopt;
  return at::empty(arguments[1].toIntVector(), arguments[0].toTensor().options());
}

/// The gradient of an activation from (cotangent, input, …), laid out as comparisons of the two are.
Result like_cotangent(Given arguments) {
  const at::Tensor& cotangent = arguments[0].toTensor();
  const at::Tensor& input = arguments[1].toTensor();
  if (cotangent.sizes() != input.sizes() || cotangent.scalar_type() != input.scalar_type()) return std::nullopt;
  const at::Tensor compared = at::eq(cotangent, input);
  return at::empty_strided(compared.sizes(), compared.strides(), input.options());
}

/// Whether a loss of this input and target is one that the rules know. The meta kernels of empty ones divide by zero.
bool are_alike(const at::Tensor& input, const at::Tensor& target) {
  const bool is_empty = input.is_floating_point() && input.numel() == 0;
  return (is_float_or_double(input) || is_empty) && input.sizes() == target.sizes() && input.is_contiguous() &&
         target.is_contiguous() && input.scalar_type() == target.scalar_type() && input.device() == target.device();
}

/// The gradient of a loss from (cotangent, input, target, …).
Result like_input_of_loss(Given arguments) {
  const at::Tensor& cotangent = arguments[0].toTensor();
  const at::Tensor& input = arguments[1].toTensor();
  const bool is_known = are_alike(input, arguments[2].toTensor()) && cotangent.scalar_type() == input.scalar_type() &&
                        (cotangent.dim() == 0 || cotangent.strides() == input.strides());
  return is_known ? like_contiguous<1>(arguments) : std::nullopt;
}

/// A loss by itself: (input, target, …), with its reduction at `place`.
template <std::size_t place>
Result loss(Given arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const bool has_weights = std::ranges::any_of(arguments.subspan(2, place - 2), &is_given);
  if (has_weights || !are_alike(input, arguments[1].toTensor())) return std::nullopt;
  const bool is_reduced = arguments[place].toInt() != 0;
  return at::empty(is_reduced ? at::IntArrayRef() : input.sizes(), input.options());
}

/// Variances and deviations: (self, dim, correction, keepdim). Overloads with a flag instead of a correction are
/// composite.
Result reduced(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (arguments.size() != 4 || !is_float_or_double(self) || !arguments[3].isBool()) return std::nullopt;
  if (arguments[2].isBool() || (!arguments[1].isNone() && !arguments[1].isIntList())) return std::nullopt;
  return reduced_over(self, arguments[1].isNone() ? IValue(std::vector<std::int64_t>()) : arguments[1], arguments[3]);
}

Results both_reduced(Given arguments) {
  const auto result = reduced(arguments);
  return result ? Results({*result, at::empty(result->sizes(), result->options())}) : std::nullopt;
}

constexpr ResultRule kElementRules[] = {
    {"aten::abs", &of_elements_alone},
    {"aten::add", &like_elements_with_number},
    {"aten::arange", &range_of_integers},
    {"aten::binary_cross_entropy", &loss<3>},
    {"aten::binary_cross_entropy_backward", &like_input_of_loss},
    {"aten::binary_cross_entropy_with_logits", &loss<4>},
    {"aten::celu", &of_elements_alone},
    {"aten::constant_pad_nd", &padded_with_number},
    {"aten::div", &like_elements_with_number},
    {"aten::div_", &first_with_number},
    {"aten::empty_like", &allocated_like},
    {"aten::fill", &like_elements},
    {"aten::flip", &like_elements},
    {"aten::glu_backward", &like_contiguous<1>},
    {"aten::hardswish", &of_elements_alone},
    {"aten::hardswish_backward", &like_cotangent},
    {"aten::hardtanh", &like_elements},
    {"aten::hardtanh_backward", &like_cotangent},
    {"aten::huber_loss", &loss<2>},
    {"aten::huber_loss_backward", &like_input_of_loss},
    {"aten::index_add", &with_no_rows_added},
    {"aten::index_put", &like_elements},
    {"aten::index_reduce", &with_no_rows_added},
    {"aten::logsumexp", &logsumexp},
    {"aten::masked_fill", &like_filled},
    {"aten::mean", &mean},
    {"aten::mish", &of_elements_alone},
    {"aten::mish_backward", &like_cotangent},
    {"aten::mse_loss_backward", &like_input_of_loss},
    {"aten::mul", &like_elements_with_number},
    {"aten::multi_margin_loss_backward", &like_contiguous<1>},
    {"aten::multilabel_margin_loss_backward", &like_contiguous<1>},
    {"aten::rand", &random_numbers},
    {"aten::randn", &random_numbers},
    {"aten::relu", &of_elements_alone},
    {"aten::remainder", &remainder},
    {"aten::repeat", &repeated},
    {"aten::roll", &like_contiguous<0>},
    {"aten::rsub", &subtracted_from_number},
    {"aten::select_backward", &of_given_sizes},
    {"aten::select_scatter", &like_contiguous<0>},
    {"aten::slice_backward", &of_given_sizes},
    {"aten::slice_scatter", &like_contiguous<0>},
    {"aten::smooth_l1_loss_backward", &like_input_of_loss},
    {"aten::stack", &stacked},
    {"aten::std", &reduced},
    {"aten::sub", &like_elements_with_number},
    {"aten::var", &reduced},
    {"aten::var_mean", nullptr, &both_reduced},
    {"aten::where", &where},
    {"aten::zeros_like", &allocated_like},
};

}  // namespace

std::span<const ResultRule> element_rules() { return kElementRules; }

}  // namespace thunder::tracer
