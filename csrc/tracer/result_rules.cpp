#include "tracer/result_rules.h"

#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/expand_copy.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/unsqueeze.h>

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

/// By its parts; the meta kernel raises two in the default dtype to an integer power, whatever the first argument.
Result times_power_of_two(Given arguments) {
  return at::mul(arguments[0].toTensor(), at::pow(c10::Scalar(2.0), arguments[1].toTensor()));
}

/// All three take part in type promotion as the matrices that they are expanded to, also a first one without
/// dimensions, which the meta kernel takes for a number.
Result added_outer_product(Given arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& left = arguments[1].toTensor();
  const at::Tensor& right = arguments[2].toTensor();
  if (self.dim() > 2 || left.dim() != 1 || right.dim() != 1) return std::nullopt;
  const std::vector<std::int64_t> sizes = {left.size(0), right.size(0)};
  if (!at::is_expandable_to(self.sizes(), sizes)) return std::nullopt;
  const at::Tensor matrix = self.sizes() == sizes ? self : at::expand_copy(self, sizes);
  return at::add(matrix, at::mul(at::unsqueeze(left, 1), right));
}

/// The kernel copies what is no view; the meta kernel wants one.
Result view_copy(Given arguments) {
  if (!arguments[1].isIntList()) return std::nullopt;
  const at::Tensor& self = arguments[0].toTensor();
  return at::empty(at::infer_size(arguments[1].toIntVector(), self.numel()), self.options());
}

/// (generator, method, arguments, dtype): to ask the kernel would draw.
Result drawn_number(Given arguments) { return at::empty({}, at::TensorOptions(arguments[3].toScalarType())); }

/// Rules for operators whose own kernels for metadata are missing or wrong.
constexpr ResultRule kRules[] = {
    {"aten::__lshift__", &shifted},
    {"aten::__rshift__", &shifted},
    {"aten::_ctc_loss_backward", &like_log_probabilities},
    {"aten::addr", &added_outer_product},
    {"aten::floor_divide", &like_quotient},
    {"aten::index_fill", &like_first},
    {"aten::isin", &is_number_in},
    {"aten::ldexp", &times_power_of_two},
    {"aten::linalg_eig", nullptr, &eigenvalues_and_vectors},
    {"aten::linspace", &range_between},
    {"aten::logical_and", &like_comparison},
    {"aten::logical_or", &like_comparison},
    {"aten::logical_xor", &like_comparison},
    {"aten::logspace", &range_between},
    {"aten::nonzero_static", &nonzero_static},
    {"aten::one_hot", &one_hot},
    {"aten::view_copy", &view_copy},
    {"thunder::draw_number", &drawn_number},
};

const ResultRule* find_rule(std::string_view name) {
  static const auto* const kByName = [] {
    auto* table = new std::unordered_map<std::string_view, const ResultRule*>;
    for (const std::span<const ResultRule> rules :
         {std::span<const ResultRule>(kRules), element_rules(), layer_rules(), fourier_rules()}) {
      for (const ResultRule& rule : rules) table->emplace(rule.name, &rule);
    }
    return table;
  }();
  const auto found = kByName->find(name);
  return found == kByName->end() ? nullptr : found->second;
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

}  // namespace thunder::tracer
