#include "executors/cpu/products.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "executors/cpu/native_operations.h"
#include "executors/cpu/roles.h"
#include "executors/cpu/single_operations.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

using Stack = std::vector<c10::IValue>;

/// Multiplications in the ten microseconds that oneDNN's entry takes longer than MKL's.
constexpr std::int64_t kLeastProduct = std::int64_t{1} << 21U;

bool has_avx512_but_not_for_mkl() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

using LinearPointwise = at::Tensor(const at::Tensor& input, const at::Tensor& weight,
                                   const std::optional<at::Tensor>& bias, c10::string_view activation,
                                   c10::List<std::optional<at::Scalar>> numbers,
                                   std::optional<c10::string_view> algorithm);

std::optional<c10::TypedOperatorHandle<LinearPointwise>> find_linear() {
  if (!has_avx512_but_not_for_mkl() || !at::Context::hasMKL() || !at::Context::hasMKLDNN()) return std::nullopt;
  const auto op = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  return op ? std::make_optional(op->typed<LinearPointwise>()) : std::nullopt;
}
const std::optional<c10::TypedOperatorHandle<LinearPointwise>>& linear() {
  static const auto kLinear = find_linear();
  return kLinear;
}

/// With neighbours in a row or in a column side by side.
bool is_matrix(const at::Tensor& tensor) {
  if (!is_plain(tensor, at::kFloat, 2)) return false;
  const bool is_by_rows = tensor.stride(1) == 1 && tensor.stride(0) >= tensor.size(1);
  const bool is_by_columns = tensor.stride(0) == 1 && tensor.stride(1) >= tensor.size(0);
  return is_by_rows || is_by_columns;
}

/// PyTorch's copy of a transposed matrix takes one thread.
at::Tensor by_rows(const at::Tensor& matrix) {
  if (matrix.is_contiguous()) return matrix;
  at::Tensor copy = at::empty(matrix.sizes(), matrix.options());
  constexpr std::int64_t kElements = 1 << 15;
  const std::int64_t rows = std::max<std::int64_t>(kElements / matrix.size(1), 64);
  at::parallel_for(0, matrix.size(0), rows, [&](std::int64_t begin, std::int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    copy.slice(0, begin, end).copy_(matrix.slice(0, begin, end));
  });
  return copy;
}

/// `left @ right`, plus `bias`; replaces `count` arguments. The rows of `left` are its leading dimensions.
bool multiply(Stack& stack, std::size_t count, const at::Tensor& left, const at::Tensor& right,
              const std::optional<at::Tensor>& bias) {
  if (!at::globalContext().userEnabledMkldnn() || left.dim() < 2 || left.size(-1) != right.size(0)) return false;
  const at::Tensor rows = left.dim() == 2 ? left : left.reshape({-1, left.size(-1)});
  if (!is_matrix(rows) || !is_matrix(right)) return false;
  if (bias && (bias->dim() != 1 || bias->scalar_type() != at::kFloat || !bias->is_contiguous())) return false;
  at::Tensor product =
      linear()->call(by_rows(rows), right.t(), bias, "none", c10::List<std::optional<at::Scalar>>(), "");
  if (left.dim() != 2) {
    std::vector<std::int64_t> sizes = left.sizes().vec();
    sizes.back() = right.size(1);
    product = product.view(sizes);
  }
  stack.resize(stack.size() - count);
  stack.emplace_back(std::move(product));
  return true;
}

std::optional<at::Tensor> bias_of(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() ? std::make_optional(value.toTensor()) : std::nullopt;
}

bool is_one(const c10::IValue& value) { return value.isScalar() && value.toScalar().toDouble() == 1; }

bool run_mm(Stack& stack) {
  const c10::IValue* arguments = stack.data() + stack.size() - 2;
  const at::Tensor left = arguments[0].toTensor();
  const at::Tensor right = arguments[1].toTensor();
  return right.dim() == 2 && multiply(stack, 2, left, right, std::nullopt);
}

bool run_addmm(Stack& stack) {
  constexpr std::size_t kArguments = 5;
  const c10::IValue* arguments = stack.data() + stack.size() - kArguments;
  if (!is_one(arguments[3]) || !is_one(arguments[4])) return false;
  const at::Tensor left = arguments[1].toTensor();
  const at::Tensor right = arguments[2].toTensor();
  return multiply(stack, kArguments, left, right, arguments[0].toTensor());
}

bool run_linear(Stack& stack) {
  constexpr std::size_t kArguments = 3;
  const c10::IValue* arguments = stack.data() + stack.size() - kArguments;
  const at::Tensor input = arguments[0].toTensor();
  const at::Tensor weight = arguments[1].toTensor();
  return weight.dim() == 2 && multiply(stack, kArguments, input, weight.t(), bias_of(arguments[2]));
}

struct Product {
  NativeOperation operation;
  std::size_t left = 0;  ///< the argument whose last dimension is summed over
};
constexpr Product kProducts[] = {{{"aten::addmm", &run_addmm}, 1},
                                 {{"aten::linear", &run_linear}},
                                 {{"aten::matmul", &run_mm}},
                                 {{"aten::mm", &run_mm}}};

const Product* find_product(const ir::BoundSymbol& symbol) {
  const auto has_name = [&](const Product& product) { return product.operation.name == symbol.op->name; };
  const auto* found = std::ranges::find_if(kProducts, has_name);
  return found != std::end(kProducts) && symbol.op->overload.empty() ? found : nullptr;
}

}  // namespace

bool takes_product(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const Product* product = find_product(symbol);
  if (product == nullptr || !linear()) return false;
  const ir::TensorType* left = argument_type(symbol, trace, product->left);
  const ir::TensorType* result = result_type(symbol, trace);
  if (left == nullptr || result == nullptr || left->sizes.empty() || left->device.type != ir::DeviceType::kCpu)
    return false;
  return left->dtype == ir::Dtype::kFloat32 && result->dtype == ir::Dtype::kFloat32 &&
         passes::element_count(*result) * left->sizes.back().hint >= kLeastProduct;
}

void lower_product(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  lower_native(find_product(symbol)->operation, symbol, trace, builder);
}

}  // namespace thunder::executors::cpu
