#include "executors/cpu/attention.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/empty_strided.h>

#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bridge/convert.h"
#include "executors/api/operands.h"
#include "executors/cpu/matmuls.h"
#include "executors/cpu/plain_tensor.h"
#include "executors/cpu/threads.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

/// Multiplications of a matmul of one head that calls are small beside.
constexpr std::int64_t kLeastHead = std::int64_t{1} << 21U;
/// Heads of all examples: enough for the threads of a processor.
constexpr std::int64_t kLeastHeads = 12;
/// Scores of a head: they stay in a cache.
constexpr std::int64_t kMostScores = std::int64_t{1} << 20U;
/// Keys that oneDNN adds up in one go, without losing more than PyTorch's kernel, which goes over keys in parts.
constexpr std::int64_t kMostKeys = 1024;

/// The positions of the operator's arguments.
struct Place {
  enum : std::size_t { kQuery, kKey, kValue, kMask, kDropout, kCausal, kScale, kGrouped, kArguments };
};

struct Attention {
  c10::OperatorHandle op;
  std::vector<std::int64_t> strides;  ///< strides of the result
};

struct Heads {
  const at::Tensor& query;
  const at::Tensor& key;
  const at::Tensor& value;
  const at::Tensor& result;
  double scale;
};

/// A head by itself: its scores stay in the second-level cache.
void attend_to_head(void* context, std::int64_t i) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const Heads& heads = *static_cast<const Heads*>(context);
  const auto head_of = [&](const at::Tensor& tensor) {
    return tensor.select(0, i / tensor.size(1)).select(0, i % tensor.size(1));
  };
  const at::Tensor scores =
      multiply_by_transposed((head_of(heads.query) * heads.scale).contiguous(), head_of(heads.key).contiguous());
  const at::Tensor weights = at::_softmax(scores, -1, false);
  head_of(heads.result).copy_(multiply_by_transposed(weights, head_of(heads.value).contiguous().t()));
}

std::optional<at::Tensor> attend(const Attention& attention, const c10::IValue* arguments) {
  const at::Tensor& query = arguments[Place::kQuery].toTensor();
  const at::Tensor& key = arguments[Place::kKey].toTensor();
  const at::Tensor& value = arguments[Place::kValue].toTensor();
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    if (!is_plain(*tensor, at::kFloat, 4)) return std::nullopt;
  }
  if (!at::globalContext().userEnabledMkldnn()) return std::nullopt;
  const auto scale = arguments[Place::kScale].toOptional<double>();
  const std::vector<std::int64_t> sizes = {query.size(0), query.size(1), query.size(2), value.size(3)};
  at::Tensor result = at::empty_strided(sizes, attention.strides, query.options());
  Heads heads{query, key, value, result, scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))))};
  run_tasks(sizes[0] * sizes[1], true, &attend_to_head, &heads);
  // For infinite values PyTorch's kernel gives zeros in some places.
  if (!std::isfinite(result.sum().item<float>())) return std::nullopt;
  return result;
}

void run_attention(const void* state, std::vector<c10::IValue>& stack) {
  const auto& attention = *static_cast<const Attention*>(state);
  const std::size_t first = stack.size() - Place::kArguments;
  std::optional<at::Tensor> result = attend(attention, stack.data() + first);
  if (!result) return attention.op.callBoxed(stack);
  stack.resize(first);
  stack.emplace_back(*std::move(result));
}

}  // namespace

bool takes_attention(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  if (symbol.op->name != "aten::scaled_dot_product_attention" || symbol.arguments.size() != Place::kArguments)
    return false;
  const auto& arguments = symbol.arguments;
  if (!arguments[Place::kMask].is<ir::None>() || arguments[Place::kDropout] != ir::Argument(0.0) ||
      arguments[Place::kCausal] != ir::Argument(false) || arguments[Place::kGrouped] != ir::Argument(false)) {
    return false;
  }
  const ir::TensorType* query = passes::argument_type(symbol, trace, Place::kQuery);
  const ir::TensorType* key = passes::argument_type(symbol, trace, Place::kKey);
  const ir::TensorType* value = passes::argument_type(symbol, trace, Place::kValue);
  const ir::TensorType* result = passes::result_type(symbol, trace);
  for (const ir::TensorType* type : {query, key, value, result}) {
    const bool fits = type != nullptr && type->sizes.size() == 4 && !ir::has_symbols(*type) &&
                      type->dtype == ir::Dtype::kFloat32 && type->device.type == ir::DeviceType::kCpu &&
                      type->sizes[0] == query->sizes[0] && type->sizes[1] == query->sizes[1];
    if (!fits) return false;
  }
  const std::int64_t keys = key->sizes[2].hint;
  const std::int64_t scores = query->sizes[2].hint * keys;
  return matmuls_are_onednns(ir::Dtype::kFloat32) && query->sizes[0].hint * query->sizes[1].hint >= kLeastHeads &&
         scores * query->sizes[3].hint >= kLeastHead && scores <= kMostScores && keys <= kMostKeys;
}

void lower_attention(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
  auto attention =
      std::make_shared<const Attention>(Attention{op, bridge::hints(passes::result_type(symbol, trace)->strides)});
  builder.call(op, &run_attention, std::move(attention), operands_of(symbol, trace), result_slots(symbol),
               location_of(symbol));
}

}  // namespace thunder::executors::cpu
