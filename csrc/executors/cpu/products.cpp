#include "executors/cpu/products.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bridge/convert.h"
#include "executors/api/lowering.h"
#include "executors/cpu/activations.h"
#include "executors/cpu/onednn.h"
#include "executors/cpu/packed_weight.h"
#include "executors/cpu/single_operations.h"
#include "ir/symbol_values.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

using Stack = std::vector<c10::IValue>;

/// Multiplications in the ten microseconds that oneDNN's entry takes longer than MKL's.
constexpr std::int64_t kLeastProduct = std::int64_t{1} << 21U;
/// Elements of a weight for which its layout matters more than those.
constexpr std::int64_t kLeastWeight = std::int64_t{1} << 18U;

using LinearPointwise = at::Tensor(const at::Tensor& input, const at::Tensor& weight,
                                   const std::optional<at::Tensor>& bias, c10::string_view activation,
                                   c10::List<std::optional<at::Scalar>> numbers,
                                   std::optional<c10::string_view> algorithm);
const auto& linear() {
  static const auto kLinear = find_onednn<LinearPointwise>("mkldnn::_linear_pointwise");
  return kLinear;
}
using ReorderWeight = at::Tensor(const at::Tensor& weight, std::optional<std::int64_t> rows);
const auto& reorder_weight() {
  static const auto kReorder = find_onednn<ReorderWeight>("mkldnn::_reorder_linear_weight");
  return kReorder;
}

bool has_avx512_but_not_for_mkl() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

/// An operator that multiplies matrices: the places of its arguments.
struct Product {
  std::string_view name;
  std::size_t arguments = 2;
  std::size_t left = 0;  ///< its last dimension is summed over
  std::size_t right = 1;
  std::optional<std::size_t> bias{};
  bool takes_transposed = false;  ///< `right` has a row for each column of the result
  std::size_t factors = 0;        ///< from here on: of the bias and of the product
};
constexpr Product kProducts[] = {
    {.name = "aten::addmm", .arguments = 5, .left = 1, .right = 2, .bias = 0, .factors = 3},
    {.name = "aten::linear", .arguments = 3, .bias = 2, .takes_transposed = true},
    {.name = "aten::matmul"},
    {.name = "aten::mm"}};

const Product* find_product(const ir::BoundSymbol& symbol) {
  const auto* found = std::ranges::find(kProducts, symbol.op->name, &Product::name);
  const bool is_one = found != std::end(kProducts) && symbol.op->overload.empty() && symbol.op->handle != nullptr;
  return is_one && symbol.arguments.size() == found->arguments ? found : nullptr;
}

/// What an instruction knows.
struct ProductCall {
  const Product& product;
  at::ScalarType dtype;
  c10::OperatorHandle op;
  std::optional<Activation> activation{};
  std::unique_ptr<PackedWeight> weight{};  ///< null: it is taken as it is
};

/// With neighbours in a row or in a column side by side.
bool is_matrix(const at::Tensor& tensor, at::ScalarType dtype) {
  if (!is_plain(tensor, dtype, 2)) return false;
  const bool is_by_rows = tensor.stride(1) == 1 && tensor.stride(0) >= tensor.size(1);
  const bool is_by_columns = tensor.stride(0) == 1 && tensor.stride(1) >= tensor.size(0);
  return is_by_rows || is_by_columns;
}

/// The same, without gaps: oneDNN takes a thousand times as long for weights that have some.
bool is_whole_matrix(const at::Tensor& tensor, at::ScalarType dtype) {
  return is_matrix(tensor, dtype) && (tensor.is_contiguous() || tensor.t().is_contiguous());
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

/// As oneDNN takes it: in its own layout, or with a row for each column of the result.
at::Tensor weight_of(const ProductCall& call, const at::Tensor& right) {
  const auto rows_of = [&](const at::Tensor& matrix) { return call.product.takes_transposed ? matrix : matrix.t(); };
  const auto pack = [&](const at::Tensor& weight) {
    constexpr std::int64_t kRows = 16;  // the layout is the same for all but one
    return reorder_weight()->call(rows_of(weight.detach()), kRows);
  };
  const auto packed = call.weight == nullptr ? std::nullopt : call.weight->of(right, pack);
  return packed ? *packed : rows_of(right);
}

bool is_one(const c10::IValue& value) { return value.isScalar() && value.toScalar().toDouble() == 1; }

/// The result for the operator's arguments; nullopt where PyTorch shall run it. The rows of `left` are its leading
/// dimensions.
std::optional<at::Tensor> multiply(const ProductCall& call, const c10::IValue* arguments) {
  const Product& product = call.product;
  const at::Tensor& left = arguments[product.left].toTensor();
  const at::Tensor& right = arguments[product.right].toTensor();
  if (!at::globalContext().userEnabledMkldnn() || !is_whole_matrix(right, call.dtype)) return std::nullopt;
  if (left.dim() < 2 || left.size(-1) != right.size(product.takes_transposed ? 1 : 0)) return std::nullopt;
  const at::Tensor rows = left.dim() == 2 ? left : left.reshape({-1, left.size(-1)});
  if (!is_matrix(rows, call.dtype)) return std::nullopt;
  const auto bias = product.bias ? arguments[*product.bias].toOptional<at::Tensor>() : std::nullopt;
  if (bias && (!is_plain(*bias, call.dtype, 1) || !bias->is_contiguous())) return std::nullopt;
  if (product.factors != 0 && !std::all_of(arguments + product.factors, arguments + product.arguments, &is_one)) {
    return std::nullopt;
  }
  const Epilogue epilogue = epilogue_of(call.activation);
  const at::Tensor result =
      linear()->call(by_rows(rows), weight_of(call, right), bias, epilogue.name, epilogue.numbers, epilogue.algorithm);
  if (left.dim() == 2) return result;
  std::vector<std::int64_t> sizes = left.sizes().vec();
  sizes.back() = result.size(1);
  return result.view(sizes);
}

void run_product(const void* state, Stack& stack) {
  const auto& call = *static_cast<const ProductCall*>(state);
  const std::size_t first = stack.size() - call.product.arguments;
  std::optional<at::Tensor> result = multiply(call, stack.data() + first);
  if (!result) return run_apart(call.op, call.activation, stack);
  stack.resize(first);
  stack.emplace_back(*std::move(result));
}

/// The operator where its tensors are of a dtype and of sizes for oneDNN; null where not.
const Product* find_for_onednn(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const Product* product = find_product(symbol);
  if (product == nullptr) return nullptr;
  const ir::TensorType* left = passes::argument_type(symbol, trace, product->left);
  const ir::TensorType* right = passes::argument_type(symbol, trace, product->right);
  const ir::TensorType* result = passes::result_type(symbol, trace);
  if (left == nullptr || right == nullptr || result == nullptr) return nullptr;
  const bool fits = left->sizes.size() >= 2 && right->sizes.size() == 2 && left->device.type == ir::DeviceType::kCpu &&
                    left->dtype == right->dtype && left->dtype == result->dtype && products_are_onednns(left->dtype);
  return fits ? product : nullptr;
}

bool is_large(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const ir::Dim& common = passes::argument_type(symbol, trace, find_product(symbol)->left)->sizes.back();
  return passes::element_count(*passes::result_type(symbol, trace)) * common.hint >= kLeastProduct;
}

void lower(const ir::BoundSymbol& symbol, const ir::Trace& trace, const ir::BoundSymbol* activation, bool prepacks,
           runtime::ProgramBuilder& builder) {
  const Product& product = *find_product(symbol);
  const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
  auto call = std::make_shared<ProductCall>(
      ProductCall{product, bridge::to_torch(passes::result_type(symbol, trace)->dtype), op});
  if (activation != nullptr) call->activation = activation_of(*activation, trace);
  if (prepacks && takes_prepacked_product(symbol, trace)) {
    call->weight = std::make_unique<PackedWeight>(WeightGuard::kVersion, product.takes_transposed ? "rows" : "columns");
  }
  const ir::BoundSymbol& last = activation != nullptr ? *activation : symbol;
  builder.call(op, &run_product, std::move(call), operands_of(symbol, trace), result_slots(last), location_of(symbol));
}

}  // namespace

bool products_are_onednns(ir::Dtype dtype) {
  static const bool kFloat = has_avx512_but_not_for_mkl() && at::Context::hasMKL();
  return linear() && onednn_has(dtype) && (dtype != ir::Dtype::kFloat32 || kFloat);  // of bfloat16 PyTorch's are
}

at::Tensor multiply_by_transposed(const at::Tensor& left, const at::Tensor& right) {
  return linear()->call(left, right, std::nullopt, "none", c10::List<std::optional<at::Scalar>>(), "");
}

bool takes_product(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  return find_for_onednn(symbol, trace) != nullptr && is_large(symbol, trace) &&
         passes::result_type(symbol, trace)->dtype == ir::Dtype::kFloat32;
}

void lower_product(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  lower(symbol, trace, nullptr, false, builder);
}

bool takes_prepacked_product(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const Product* product = find_for_onednn(symbol, trace);
  if (product == nullptr || !reorder_weight()) return false;
  const ir::ValueId weight = passes::value_argument(symbol, product->right);
  return passes::element_count(*trace.tensor_type(weight)) >= kLeastWeight &&
         std::ranges::find(trace.inputs, weight) != trace.inputs.end();
}

void lower_prepacked_product(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  lower(symbol, trace, nullptr, true, builder);
}

bool product_takes_activation(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  return find_for_onednn(symbol, trace) != nullptr && is_large(symbol, trace);
}

void lower_product_with_activation(const ir::BoundSymbol& product, const ir::BoundSymbol& activation,
                                   const ir::Trace& trace, bool prepacks, runtime::ProgramBuilder& builder) {
  lower(product, trace, &activation, prepacks, builder);
}

}  // namespace thunder::executors::cpu
