#include "executors/cpu/matmuls.h"

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
#include "executors/api/operands.h"
#include "executors/cpu/activations.h"
#include "executors/cpu/onednn.h"
#include "executors/cpu/packed_weight.h"
#include "executors/cpu/plain_tensor.h"
#include "ir/symbol_values.h"
#include "operators/facts.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

using Stack = std::vector<c10::IValue>;

/// Multiplications in the ten microseconds that oneDNN's entry takes longer than MKL's.
constexpr std::int64_t kLeastMatmul = std::int64_t{1} << 21U;
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

using operators::Matmul;

/// Null: the operator multiplies no matrices, or batches of them.
const Matmul* find_matmul(const ir::BoundSymbol& symbol) {
  const Matmul* matmul = symbol.op->handle == nullptr ? nullptr : operators::find_matmul(*symbol.op);
  const bool is_one =
      matmul != nullptr && !matmul->is_batched && symbol.arguments.size() == symbol.op->parameters.size();
  return is_one ? matmul : nullptr;
}

/// The state of an instruction that multiplies matrices.
struct MatmulCall {
  const Matmul& matmul;
  std::size_t arguments;
  at::ScalarType dtype;
  c10::OperatorHandle op;
  std::optional<Activation> activation{};
  std::unique_ptr<PackedWeight> weight{};  ///< null: it is taken as it is
};

/// Whether neighbours in a row, or in a column, follow one another in memory.
bool is_matrix(const at::Tensor& tensor, at::ScalarType dtype) {
  if (!is_plain(tensor, dtype, 2)) return false;
  const bool is_by_rows = tensor.stride(1) == 1 && tensor.stride(0) >= tensor.size(1);
  const bool is_by_columns = tensor.stride(0) == 1 && tensor.stride(1) >= tensor.size(0);
  return is_by_rows || is_by_columns;
}

/// Whether a matrix has no gaps: oneDNN takes a thousand times as long for weights that have some.
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
at::Tensor weight_of(const MatmulCall& call, const at::Tensor& right) {
  const auto rows_of = [&](const at::Tensor& matrix) { return call.matmul.takes_transposed ? matrix : matrix.t(); };
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
std::optional<at::Tensor> multiply(const MatmulCall& call, const c10::IValue* arguments) {
  const Matmul& matmul = call.matmul;
  const at::Tensor& left = arguments[matmul.left].toTensor();
  const at::Tensor& right = arguments[matmul.right].toTensor();
  if (!at::globalContext().userEnabledMkldnn() || !is_whole_matrix(right, call.dtype)) return std::nullopt;
  if (left.dim() < 2 || left.size(-1) != right.size(matmul.takes_transposed ? 1 : 0)) return std::nullopt;
  const at::Tensor rows = left.dim() == 2 ? left : left.reshape({-1, left.size(-1)});
  if (!is_matrix(rows, call.dtype)) return std::nullopt;
  const auto bias = matmul.bias ? arguments[*matmul.bias].toOptional<at::Tensor>() : std::nullopt;
  if (bias && (!is_plain(*bias, call.dtype, 1) || !bias->is_contiguous())) return std::nullopt;
  if (matmul.factors != 0 && !std::all_of(arguments + matmul.factors, arguments + call.arguments, &is_one)) {
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

void run_matmul(const void* state, Stack& stack) {
  const auto& call = *static_cast<const MatmulCall*>(state);
  const std::size_t first = stack.size() - call.arguments;
  std::optional<at::Tensor> result = multiply(call, stack.data() + first);
  if (!result) return run_apart(call.op, call.activation, stack);
  stack.resize(first);
  stack.emplace_back(*std::move(result));
}

/// The operator where its tensors are of a dtype and of sizes for oneDNN; null where not.
const Matmul* find_for_onednn(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const Matmul* matmul = find_matmul(symbol);
  if (matmul == nullptr) return nullptr;
  const ir::TensorType* left = passes::argument_type(symbol, trace, matmul->left);
  const ir::TensorType* right = passes::argument_type(symbol, trace, matmul->right);
  const ir::TensorType* result = passes::result_type(symbol, trace);
  if (left == nullptr || right == nullptr || result == nullptr) return nullptr;
  const bool fits = left->sizes.size() >= 2 && right->sizes.size() == 2 && left->device.type == ir::DeviceType::kCpu &&
                    left->dtype == right->dtype && left->dtype == result->dtype && matmuls_are_onednns(left->dtype);
  return fits ? matmul : nullptr;
}

bool is_large(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const ir::Dim& common = passes::argument_type(symbol, trace, find_matmul(symbol)->left)->sizes.back();
  return passes::element_count(*passes::result_type(symbol, trace)) * common.hint >= kLeastMatmul;
}

void lower(const ir::BoundSymbol& symbol, const ir::Trace& trace, const ir::BoundSymbol* activation, bool prepacks,
           runtime::ProgramBuilder& builder) {
  const Matmul& matmul = *find_matmul(symbol);
  const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
  auto call = std::make_shared<MatmulCall>(
      MatmulCall{matmul, symbol.arguments.size(), bridge::to_torch(passes::result_type(symbol, trace)->dtype), op});
  if (activation != nullptr) call->activation = activation_of(*activation, trace);
  if (prepacks && takes_prepacked_matmul(symbol, trace)) {
    call->weight = std::make_unique<PackedWeight>(WeightGuard::kVersion, matmul.takes_transposed ? "rows" : "columns");
  }
  const ir::BoundSymbol& last = activation != nullptr ? *activation : symbol;
  builder.call(op, &run_matmul, std::move(call), operands_of(symbol, trace), result_slots(last), location_of(symbol));
}

}  // namespace

bool matmuls_are_onednns(ir::Dtype dtype) {
  static const bool kFloat = has_avx512_but_not_for_mkl() && at::Context::hasMKL();
  return linear() && onednn_has(dtype) && (dtype != ir::Dtype::kFloat32 || kFloat);  // PyTorch uses oneDNN for bfloat16
}

at::Tensor multiply_by_transposed(const at::Tensor& left, const at::Tensor& right) {
  return linear()->call(left, right, std::nullopt, "none", c10::List<std::optional<at::Scalar>>(), "");
}

bool takes_matmul(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  return find_for_onednn(symbol, trace) != nullptr && is_large(symbol, trace) &&
         passes::result_type(symbol, trace)->dtype == ir::Dtype::kFloat32;
}

void lower_matmul(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  lower(symbol, trace, nullptr, false, builder);
}

bool takes_prepacked_matmul(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const Matmul* matmul = find_for_onednn(symbol, trace);
  if (matmul == nullptr || !reorder_weight()) return false;
  const ir::ValueId weight = passes::value_argument(symbol, matmul->right);
  return passes::element_count(*trace.tensor_type(weight)) >= kLeastWeight &&
         std::ranges::find(trace.inputs, weight) != trace.inputs.end();
}

void lower_prepacked_matmul(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  lower(symbol, trace, nullptr, true, builder);
}

bool matmul_takes_activation(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  return find_for_onednn(symbol, trace) != nullptr && is_large(symbol, trace);
}

void lower_matmul_with_activation(const ir::BoundSymbol& matmul, const ir::BoundSymbol& activation,
                                  const ir::Trace& trace, bool prepacks, runtime::ProgramBuilder& builder) {
  lower(matmul, trace, &activation, prepacks, builder);
}

}  // namespace thunder::executors::cpu
