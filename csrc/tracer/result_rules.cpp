#include "tracer/result_rules.h"

#include <ATen/InferSize.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/where.h>

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

struct ResultRule {
  std::string_view name;
  std::optional<at::Tensor> (*result)(Given arguments);
};

constexpr ResultRule kResultRules[] = {
    {"aten::_ctc_loss_backward", &like_log_probabilities},
    {"aten::floor_divide", &like_quotient},
    {"aten::index_fill", &like_first},
    {"aten::isin", &is_number_in},
    {"aten::linspace", &range_between},
    {"aten::logspace", &range_between},
    {"aten::logical_and", &like_comparison},
    {"aten::logical_or", &like_comparison},
    {"aten::logical_xor", &like_comparison},
    {"aten::nonzero_static", &nonzero_static},
    {"aten::one_hot", &one_hot},
    {"aten::view_copy", &view_copy},
    {"aten::where", &where_of_bytes},
};

}  // namespace

std::optional<at::Tensor> result_by_rule(const c10::OperatorHandle& op, Given arguments) {
  for (const ResultRule& row : kResultRules) {
    if (row.name == op.operator_name().name) return row.result(arguments);
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
