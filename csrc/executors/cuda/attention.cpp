#include "executors/cuda/attention.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "executors/cuda_kernels/attention_source.h"
#include "fusion/region.h"
#include "ir/symbol_values.h"
#include "operators/attention.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cuda {
namespace {

constexpr std::size_t kRank = 4;
/// Dimensions of queries, keys and values.
enum Dimension : std::size_t { kBatch, kHeads, kPlaces, kColumns };

/// A call of attention without dropout and causal masks, whose tensors have four dimensions.
struct Call {
  const ir::BoundSymbol& symbol;
  const operators::Attention& places;
  const ir::TensorType& query;
  const ir::TensorType& key;
  const ir::TensorType& value;
  const ir::TensorType* mask;  ///< null: there is none

  [[nodiscard]] std::int64_t heads_of_group() const {
    return query.sizes[kHeads].hint / std::max<std::int64_t>(key.sizes[kHeads].hint, 1);
  }
};

/// Whether an argument is left out, or is the one that means nothing.
bool is_off(const ir::BoundSymbol& symbol, std::size_t place, const ir::Argument& off) {
  return place >= symbol.arguments.size() || symbol.arguments[place] == off;
}

std::optional<Call> call_of(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const operators::Attention* places = operators::find_attention(*symbol.op);
  if (places == nullptr || !is_off(symbol, places->is_causal, ir::Argument(false))) return std::nullopt;
  if (places->dropout && !is_off(symbol, *places->dropout, ir::Argument(0.0))) return std::nullopt;
  const auto type = [&](std::size_t i) { return passes::argument_type(symbol, trace, i); };
  const ir::TensorType* result = passes::result_type(symbol, trace);
  const ir::TensorType* tensors[] = {type(places->query), type(places->key), type(places->value), result};
  for (const ir::TensorType* tensor : tensors) {
    if (tensor == nullptr || tensor->sizes.size() != kRank || tensor->dtype != tensors[0]->dtype) return std::nullopt;
  }
  const ir::TensorType* mask = type(places->mask);
  const bool has_mask = !is_off(symbol, places->mask, ir::Argument());
  if (has_mask != (mask != nullptr)) return std::nullopt;
  return Call{symbol, *places, *tensors[0], *tensors[1], *tensors[2], mask};
}

/// Whether a mask is one of scores [batch, heads, queries, keys], broadcast or not.
bool fits(const ir::TensorType& mask, const Call& call) {
  const ir::Dim scores[] = {call.query.sizes[kBatch], call.query.sizes[kHeads], call.query.sizes[kPlaces],
                            call.key.sizes[kPlaces]};
  if (mask.sizes.size() > kRank || (mask.dtype != ir::Dtype::kBool && mask.dtype != call.query.dtype)) return false;
  const std::size_t missing = kRank - mask.sizes.size();
  for (std::size_t i = 0; i < mask.sizes.size(); ++i) {
    if (mask.sizes[i] != ir::Dim(1) && mask.sizes[i] != scores[i + missing]) return false;
  }
  return true;
}

/// The arrays of a kernel: one for each argument.
std::vector<ir::ValueId> arrays_of(const Call& call) {
  std::vector<ir::ValueId> arrays;
  for (const std::size_t place : {call.places.query, call.places.key, call.places.value, call.places.mask}) {
    const ir::ValueId id = passes::value_argument(call.symbol, place);
    if (id != ir::kNoValue) arrays.push_back(id);
  }
  return arrays;
}

bool has_kernel(const Call& call) {
  const ir::Dims& query = call.query.sizes;
  const ir::Dims& key = call.key.sizes;
  for (const ir::Dim& size : {query[kHeads], query[kPlaces], query[kColumns], key[kHeads]}) {
    if (!size.is_concrete() || size.hint < 1) return false;
  }
  if (call.value.sizes != key || query[kBatch] != key[kBatch] || query[kColumns] != key[kColumns]) return false;
  // Two arguments that are one tensor would be one input of a block.
  if (arrays_of(call) != ir::distinct_values(call.symbol.arguments)) return false;
  if (query[kHeads].hint % key[kHeads].hint != 0 || (call.mask != nullptr && !fits(*call.mask, call))) return false;
  return has_attention_kernel(call.query.dtype, query[kColumns].hint, call.heads_of_group() * query[kPlaces].hint);
}

AttentionShape::Strides strides_of(const ir::TensorType& type, const ir::Dims& strides) {
  AttentionShape::Strides made{};
  const std::size_t missing = kRank - type.sizes.size();
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    if (type.sizes[i] != ir::Dim(1)) made[i + missing] = strides[i].hint;
  }
  return made;
}

/// As `strides_of`, for rows of columns that are next to one another, also where there is only one.
AttentionShape::Strides row_strides_of(const ir::TensorType& type, const ir::Dims& strides) {
  AttentionShape::Strides made = strides_of(type, strides);
  if (type.sizes[kColumns] == ir::Dim(1)) made[kColumns] = 1;
  return made;
}

double scale_of(const Call& call) {
  const std::size_t place = call.places.scale;
  const auto* scale = place < call.symbol.arguments.size() ? call.symbol.arguments[place].get<double>() : nullptr;
  return scale != nullptr ? *scale : 1 / std::sqrt(static_cast<double>(call.query.sizes[kColumns].hint));
}

}  // namespace

ir::Trace with_attention_blocks(ir::Trace trace, const fusion::Target& target, std::string_view executor) {
  for (ir::BoundSymbol& symbol : trace.symbols) {
    const auto call = call_of(symbol, trace);
    if (!call || !target.accepts(call->query) || !has_kernel(*call)) continue;
    symbol = fusion::make_block(executor, kAttention, symbol);
    symbol.comment = "few queries";
  }
  return trace;
}

std::optional<KernelSource> attention_source(const ir::BoundSymbol& block, const ir::Trace& trace,
                                             const fusion::Strides& strides, const LaunchFacts& facts) {
  const auto call = call_of(block.nested.front(), trace);
  if (!call || !has_kernel(*call)) return std::nullopt;
  const ir::TensorType& result = *passes::result_type(call->symbol, trace);
  AttentionShape shape;
  shape.dtype = call->query.dtype;
  shape.batch = call->query.sizes[kBatch].hint;
  shape.groups = call->key.sizes[kHeads].hint;
  shape.heads_of_group = call->heads_of_group();
  shape.queries = call->query.sizes[kPlaces].hint;
  shape.keys = call->key.sizes[kPlaces].hint;
  shape.columns = call->query.sizes[kColumns].hint;
  shape.scale = scale_of(*call);
  shape.query_strides = row_strides_of(call->query, strides[0]);
  shape.key_strides = row_strides_of(call->key, strides[1]);
  shape.value_strides = row_strides_of(call->value, strides[2]);
  shape.result_strides = strides_of(result, result.strides);
  if (call->mask != nullptr) {
    shape.mask = call->mask->dtype;
    shape.mask_strides = strides_of(*call->mask, strides[3]);
  }
  return emit_attention(shape, facts);
}

}  // namespace thunder::executors::cuda
