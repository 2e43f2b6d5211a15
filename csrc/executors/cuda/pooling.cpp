#include "executors/cuda/pooling.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "executors/cuda_kernels/pooling_source.h"
#include "fusion/region.h"
#include "ir/symbol_values.h"
#include "operators/image_pairs.h"
#include "operators/max_pooling.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cuda {
namespace {

using operators::Pair;

/// A call of max pooling or its derivative, all of whose tensors are images of as many channels, channels last.
struct PoolingCall {
  const operators::MaxPooling& places;
  const ir::TensorType& images;
  const ir::TensorType& maxima;  ///< or their gradient
  Pair kernel{};
  Pair stride{};
  Pair padding{};
};

/// The pair that an argument is; `otherwise`, where it is left out.
std::optional<Pair> pair_or(const ir::BoundSymbol& symbol, std::size_t place, std::optional<Pair> otherwise) {
  const bool is_given = place < symbol.arguments.size() && symbol.arguments[place] != ir::Argument(ir::ArgumentList());
  return is_given ? operators::pair_of(symbol.arguments[place]) : otherwise;
}

/// Whether images of these sizes lie channels last, without gaps, if their strides are these.
bool lies_channels_last(const ir::Dims& sizes, const ir::Dims& strides) {
  if (sizes.size() != 4 || strides.size() != 4) return false;
  const ir::Dim row = sizes[3] * sizes[1];
  const std::array expected{sizes[2] * row, ir::Dim(1), row, sizes[1]};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (sizes[i] != ir::Dim(1) && strides[i] != expected[i]) return false;
  }
  return true;
}

/// The types of all tensors that a call reads, then gives; empty: it reads something else, or one tensor twice.
std::vector<const ir::TensorType*> pooled_tensors(const ir::BoundSymbol& symbol, const operators::MaxPooling& places,
                                                  const ir::Trace& trace) {
  std::vector<ir::ValueId> values;
  if (places.gradient) values.push_back(passes::value_argument(symbol, *places.gradient));
  values.push_back(passes::value_argument(symbol, places.images));
  if (places.places) values.push_back(passes::value_argument(symbol, *places.places));
  if (values != ir::distinct_values(symbol.arguments)) return {};
  passes::for_each_result(symbol, [&](ir::ValueId id) { values.push_back(id); });
  if (values.size() != (places.gradient ? 4U : places.gives_places ? 3U : 2U)) return {};
  std::vector<const ir::TensorType*> types;
  for (const ir::ValueId id : values) types.push_back(trace.tensor_type(id));
  return types;
}

std::optional<PoolingCall> pooling_of(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const operators::MaxPooling* places = operators::find_max_pooling(*symbol.op);
  if (places == nullptr) return std::nullopt;
  const auto kernel = pair_or(symbol, places->kernel, std::nullopt);
  const auto stride = pair_or(symbol, places->stride, kernel);
  const auto padding = pair_or(symbol, places->padding, Pair{0, 0});
  const auto dilation = pair_or(symbol, places->dilation, Pair{1, 1});
  if (!kernel || !stride || !padding || dilation != Pair{1, 1}) return std::nullopt;
  const std::vector<const ir::TensorType*> types = pooled_tensors(symbol, *places, trace);
  if (types.empty() || types[0] == nullptr || types[0]->sizes.size() != 4) return std::nullopt;
  const std::size_t place_of_places = types.size() < 3 ? types.size() : 2;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const ir::Dtype dtype = i == place_of_places ? ir::Dtype::kInt64 : types[0]->dtype;
    if (types[i] == nullptr || types[i]->dtype != dtype) return std::nullopt;
    if (!lies_channels_last(types[i]->sizes, types[i]->strides)) return std::nullopt;
    if (types[i]->sizes[0] != types[0]->sizes[0] || types[i]->sizes[1] != types[0]->sizes[1]) return std::nullopt;
  }
  const ir::Dim& channels = types[0]->sizes[1];
  if (!channels.is_concrete() || !has_pooling_kernels(types[0]->dtype, channels.hint, *kernel, *stride))
    return std::nullopt;
  const bool is_gradient = places->gradient.has_value();
  return PoolingCall{*places, *types[is_gradient ? 1 : 0], *types[is_gradient ? 0 : 1], *kernel, *stride, *padding};
}

}  // namespace

ir::Trace with_pooling_blocks(ir::Trace trace, const fusion::Target& target, std::string_view executor) {
  for (ir::BoundSymbol& symbol : trace.symbols) {
    const auto call = pooling_of(symbol, trace);
    if (!call || !target.accepts(call->images)) continue;
    symbol = fusion::make_block(executor, kPooling, symbol);
    symbol.comment = "channels last";
  }
  return trace;
}

std::optional<KernelSource> pooling_source(const ir::BoundSymbol& block, const ir::Trace& trace,
                                           const fusion::Strides& strides, const LaunchFacts& facts) {
  const ir::BoundSymbol& operation = block.nested.front();
  const auto call = pooling_of(operation, trace);
  if (!call) return std::nullopt;
  const std::vector<ir::ValueId> inputs = ir::distinct_values(operation.arguments);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!lies_channels_last(trace.tensor_type(inputs[i])->sizes, strides.at(i))) return std::nullopt;
  }
  const ir::Dims& sizes = call->images.sizes;
  PoolingShape shape;
  shape.dtype = call->images.dtype;
  shape.images = sizes[0].hint;
  shape.channels = sizes[1].hint;
  shape.size = {sizes[2].hint, sizes[3].hint};
  shape.out_size = {call->maxima.sizes[2].hint, call->maxima.sizes[3].hint};
  shape.kernel = call->kernel;
  shape.stride = call->stride;
  shape.padding = call->padding;
  if (call->places.gradient) return emit_max_pooling_gradient(shape, facts);
  return emit_max_pooling(shape, call->places.gives_places, facts);
}

}  // namespace thunder::executors::cuda
