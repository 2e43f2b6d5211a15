// Fourier transforms on the CPU.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "tracer/result_rule.h"

namespace thunder::tracer {
namespace {

using Numbers = std::vector<std::int64_t>;

/// A tensor's metadata, while it is transformed.
struct Shape {
  Numbers sizes;
  Numbers strides;
};

void sort_by_stride(std::span<std::int64_t> dims, const Numbers& strides) {
  std::ranges::stable_sort(dims, std::ranges::greater(), [&](std::int64_t dim) { return strides[dim]; });
}

/// As MKL's transform over `dims` leaves its result: what is transformed lies innermost, in that order, and the other
/// dimensions as they lay among each other.
Shape transformed(const Shape& given, const Numbers& dims, Numbers sizes) {
  Numbers order;
  for (std::int64_t dim = 0; dim < std::ssize(sizes); ++dim) {
    if (std::ranges::find(dims, dim) == dims.end()) order.push_back(dim);
  }
  sort_by_stride(order, given.strides);
  order.insert(order.end(), dims.begin(), dims.end());
  Shape result{std::move(sizes), Numbers(order.size())};
  std::int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    result.strides[*dim] = stride;
    stride *= result.sizes[*dim];
  }
  return result;
}

/// The shape and the dimensions of a call (self, dim, …); nullopt: it is no call that the rules know.
std::optional<std::pair<Shape, Numbers>> known_call(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  Numbers dims = arguments[1].toIntVector();
  const bool is_known = self.is_cpu() && c10::toRealValueType(self.scalar_type()) != at::kHalf && self.numel() != 0;
  if (!is_known || dims.empty()) return std::nullopt;
  for (auto dim = dims.begin(); dim != dims.end(); ++dim) {
    if (*dim < 0 || *dim >= self.dim() || std::find(dims.begin(), dim, *dim) != dim) return std::nullopt;
  }
  return std::pair(Shape{self.sizes().vec(), self.strides().vec()}, std::move(dims));
}

/// Without MKL results are contiguous.
at::Tensor make(const Shape& shape, const at::TensorOptions& options) {
  return at::Context::hasMKL() ? at::empty_strided(shape.sizes, shape.strides, options)
                               : at::empty(shape.sizes, options);
}

Shape complex_transform(const Shape& given, Numbers dims) {
  sort_by_stride(dims, given.strides);
  return transformed(given, dims, given.sizes);
}

/// (self, dim, normalization, forward)
Result of_complex(Given arguments) {
  const auto call = known_call(arguments);
  const at::Tensor& self = arguments[0].toTensor();
  if (!call || !self.is_complex()) return std::nullopt;
  return make(complex_transform(call->first, call->second), self.options());
}

/// (self, dim, normalization, onesided): the last of the dimensions has half of the numbers, if one side is asked for.
Result of_real(Given arguments) {
  auto call = known_call(arguments);
  const at::Tensor& self = arguments[0].toTensor();
  if (!call || !is_float_or_double(self)) return std::nullopt;
  auto& [shape, dims] = *call;
  Numbers sizes = shape.sizes;
  if (arguments[3].toBool()) sizes[dims.back()] = sizes[dims.back()] / 2 + 1;
  sort_by_stride(std::span(dims).first(dims.size() - 1), shape.strides);
  return make(transformed(shape, dims, sizes), self.options().dtype(c10::toComplexType(self.scalar_type())));
}

/// (self, dim, normalization, last size): all dimensions but the last one first, as complex numbers.
Result to_real(Given arguments) {
  auto call = known_call(arguments);
  const at::Tensor& self = arguments[0].toTensor();
  const std::int64_t last_size = arguments[3].toInt();
  if (!call || !self.is_complex() || last_size < 1) return std::nullopt;
  auto& [shape, dims] = *call;
  const std::int64_t last = dims.back();
  dims.pop_back();
  if (!dims.empty()) shape = complex_transform(shape, dims);
  Numbers sizes = shape.sizes;
  sizes[last] = last_size;
  return make(transformed(shape, {last}, sizes), self.options().dtype(c10::toRealValueType(self.scalar_type())));
}

constexpr ResultRule kFourierRules[] = {
    {"aten::_fft_c2c", &of_complex},
    {"aten::_fft_c2r", &to_real},
    {"aten::_fft_r2c", &of_real},
};

}  // namespace

std::span<const ResultRule> fourier_rules() { return kFourierRules; }

}  // namespace thunder::tracer
