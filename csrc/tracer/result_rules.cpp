#include "tracer/result_rules.h"

#include <ATen/InferSize.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tracer/result_rule.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

Result like_log_probabilities(Given arguments) {
  return at::empty_like(arguments[1].toTensor(), at::TensorOptions(), at::MemoryFormat::Contiguous);
}

/// The kernel checks that the classes are in range. Without a number of classes the shape follows from data.
Result one_hot(Given arguments) {
  const at::Tensor& classes = arguments[0].toTensor();
  const std::int64_t count = arguments[1].toInt();
  if (count < 0 || classes.scalar_type() != at::kLong) return std::nullopt;
  std::vector<std::int64_t> sizes = classes.sizes().vec();
  sizes.push_back(count);
  return at::empty(sizes, classes.options());
}

Result like_first(Given arguments) { return at::empty_like(arguments[0].toTensor()); }

/// Whether a number is among the elements of a tensor (`isin`); the meta kernel takes the tensor's shape.
Result is_number_in(Given arguments) {
  if (arguments[0].isTensor()) return std::nullopt;
  return at::empty({}, arguments[1].toTensor().options().dtype(at::kBool));
}

/// Between complex numbers in tensors; the meta kernel takes them for real ones. The last four arguments are factory
/// options.
Result range_between(Given arguments) {
  constexpr std::size_t kOptions = 4;
  const IValue& dtype = arguments[arguments.size() - kOptions];
  const auto is_complex = [](const IValue& end) { return end.isTensor() && end.toTensor().is_complex(); };
  if (!dtype.isNone() || (!is_complex(arguments[0]) && !is_complex(arguments[1]))) return std::nullopt;
  const at::Tensor& like = (is_complex(arguments[0]) ? arguments[0] : arguments[1]).toTensor();
  return at::empty({arguments[2].toInt()},
                   like.options().dtype(c10::toComplexType(at::typeMetaToScalarType(at::get_default_dtype()))));
}

/// Laid out as comparisons are; the meta kernel follows the first argument, of whatever shape.
Result like_comparison(Given arguments) { return at::eq(arguments[0].toTensor(), arguments[1].toTensor()); }

/// Likewise.
Result like_quotient(Given arguments) {
  if (!arguments[1].isTensor()) return std::nullopt;
  return at::div(arguments[0].toTensor(), arguments[1].toTensor(), "floor");
}

/// With a truth value on one side; the meta kernel refuses those.
Result shifted(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const bool is_by_tensor = arguments[1].isTensor();
  const bool has_truth =
      self.scalar_type() == at::kBool || (is_by_tensor && arguments[1].toTensor().scalar_type() == at::kBool);
  if (!has_truth) return std::nullopt;
  at::Tensor result = is_by_tensor ? at::add(self, arguments[1].toTensor()) : at::add(self, arguments[1].toScalar());
  const bool has_kernel = at::isIntegralType(result.scalar_type(), /*includeBool=*/false);
  return has_kernel ? std::make_optional(std::move(result)) : std::nullopt;
}

/// The meta kernel lays it out as the one for CUDA does.
Result nonzero_static(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (!self.device().is_cpu()) return std::nullopt;
  return at::empty({arguments[1].toInt(), self.dim()}, self.options().dtype(at::kLong));
}

/// Eigenvectors are columns that lie one after the other; the meta kernel says that rows do.
Results eigenvalues_and_vectors(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (self.dim() < 2) return std::nullopt;
  const at::TensorOptions options = self.options().dtype(c10::toComplexType(self.scalar_type()));
  return std::vector<at::Tensor>{at::empty(self.sizes().slice(0, static_cast<std::size_t>(self.dim() - 1)), options),
                                 at::empty(self.sizes(), options).transpose(-2, -1)};
}

/// The kernel copies what is no view; the meta kernel wants one.
Result view_copy(Given arguments) {
  if (!arguments[1].isIntList()) return std::nullopt;
  const at::Tensor& self = arguments[0].toTensor();
  return at::empty(at::infer_size(arguments[1].toIntVector(), self.numel()), self.options());
}

/// Rules for operators whose own kernels for metadata are missing or wrong.
constexpr ResultRule kRules[] = {
    {"aten::__lshift__", &shifted},
    {"aten::__rshift__", &shifted},
    {"aten::_ctc_loss_backward", &like_log_probabilities},
    {"aten::floor_divide", &like_quotient},
    {"aten::index_fill", &like_first},
    {"aten::isin", &is_number_in},
    {"aten::linalg_eig", nullptr, &eigenvalues_and_vectors},
    {"aten::linspace", &range_between},
    {"aten::logical_and", &like_comparison},
    {"aten::logical_or", &like_comparison},
    {"aten::logical_xor", &like_comparison},
    {"aten::logspace", &range_between},
    {"aten::nonzero_static", &nonzero_static},
    {"aten::one_hot", &one_hot},
    {"aten::view_copy", &view_copy},
};

const ResultRule* find_rule(std::string_view name) {
  static const auto* const kByName = [] {
    auto* table = new std::unordered_map<std::string_view, const ResultRule*>;
    for (const std::span<const ResultRule> rules :
         {std::span<const ResultRule>(kRules), element_rules(), layer_rules()}) {
      for (const ResultRule& rule : rules) table->emplace(rule.name, &rule);
    }
    return table;
  }();
  const auto found = kByName->find(name);
  return found == kByName->end() ? nullptr : found->second;
}

/// Where a norm that gives statistics has its weight; nullopt: it is no such norm.
std::optional<std::size_t> position_of_norm_weight(std::string_view name) {
  if (name == "aten::native_layer_norm") return 2;
  if (name == "aten::native_group_norm" || name == "aten::native_batch_norm") return 1;
  return std::nullopt;
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

}  // namespace

std::optional<std::vector<IValue>> results_by_rule(const c10::OperatorHandle& op, Given arguments) {
  const ResultRule* rule = find_rule(op.operator_name().name);
  if (rule == nullptr) return std::nullopt;
  if (rule->one != nullptr) {
    Result result = rule->one(arguments);
    return result ? std::make_optional(std::vector<IValue>{*std::move(result)}) : std::nullopt;
  }
  const Results results = rule->several(arguments);
  if (!results) return std::nullopt;
  return std::vector<IValue>(results->begin(), results->end());
}

IValue result_as_of_kernel(const c10::OperatorHandle& op, Given arguments, std::size_t index, IValue result) {
  const std::string& name = op.operator_name().name;
  if (const auto weight = position_of_norm_weight(name)) {
    return index == 0 ? result : as_statistic(result.toTensor(), arguments[0].toTensor(), arguments[*weight]);
  }
  if (name == "aten::native_dropout") {  // the meta kernel gives the input itself where nothing is dropped
    const at::Tensor& input = arguments[0].toTensor();
    return result.toTensor().is_same(input) ? at::empty_like(input) : result;
  }
  if (name != "aten::convolution" && name != "aten::_convolution") return result;
  const at::MemoryFormat format = format_of_convolution(arguments);
  if (format == at::MemoryFormat::Contiguous) return result;
  return at::empty_like(result.toTensor(), at::TensorOptions(), format);
}

}  // namespace thunder::tracer
