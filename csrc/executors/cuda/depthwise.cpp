#include "executors/cuda/depthwise.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "executors/cuda/channels_last.h"
#include "executors/cuda_kernels/depthwise_source.h"
#include "fusion/region.h"
#include "ir/symbol_values.h"
#include "operators/facts.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cuda {
namespace {

/// The arguments of `aten::convolution`.
enum ConvolutionPlace : std::size_t {
  kImages,
  kFilters,
  kBias,
  kStride,
  kPadding,
  kDilation,
  kIsTransposed,
  kOutputPadding,
  kGroups,
  kConvolutionPlaces
};

struct DepthwiseCall {
  const ir::TensorType& images;
  const ir::TensorType& filters;
  const ir::TensorType& result;
  DepthwiseShape::Pair kernel{};
  DepthwiseShape::Pair padding{};
};

/// A number for each direction, of a list of two, or of one for both; nullopt: it is something else.
std::optional<DepthwiseShape::Pair> directions_of(const ir::Argument& argument) {
  const auto* list = argument.get<ir::ArgumentList>();
  if (list == nullptr || list->empty() || list->size() > 2) return std::nullopt;
  const auto* first = list->front().get<std::int64_t>();
  const auto* last = list->back().get<std::int64_t>();
  if (first == nullptr || last == nullptr) return std::nullopt;
  return DepthwiseShape::Pair{*first, *last};
}

bool is_plain_convolution(const ir::BoundSymbol& symbol) {
  constexpr DepthwiseShape::Pair kOnes{1, 1};
  return operators::has_fact(*symbol.op, operators::Fact::kIsConvolution) &&
         symbol.arguments.size() == kConvolutionPlaces && symbol.arguments[kBias] == ir::Argument() &&
         symbol.arguments[kIsTransposed] == ir::Argument(false) && directions_of(symbol.arguments[kStride]) == kOnes &&
         directions_of(symbol.arguments[kDilation]) == kOnes;
}

std::optional<DepthwiseCall> depthwise_of(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  if (!is_plain_convolution(symbol)) return std::nullopt;
  const ir::TensorType* images = passes::argument_type(symbol, trace, kImages);
  const ir::TensorType* filters = passes::argument_type(symbol, trace, kFilters);
  const ir::TensorType* result = passes::result_type(symbol, trace);
  const auto padding = directions_of(symbol.arguments[kPadding]);
  for (const ir::TensorType* type : {images, filters, result}) {
    if (type == nullptr || type->sizes.size() != 4 || type->dtype != images->dtype) return std::nullopt;
  }
  if (ir::distinct_values(symbol.arguments).size() != 2 || !padding) return std::nullopt;
  if (!lies_channels_last(images->sizes, images->strides) || !lies_channels_last(result->sizes, result->strides))
    return std::nullopt;
  const ir::Dim& channels = images->sizes[1];
  const ir::Dims& sizes = filters->sizes;
  const bool is_one_each = channels.is_concrete() && sizes[0] == channels && sizes[1] == ir::Dim(1) &&
                           result->sizes[1] == channels && symbol.arguments[kGroups] == ir::Argument(channels.hint);
  if (!is_one_each || !sizes[2].is_concrete() || !sizes[3].is_concrete()) return std::nullopt;
  const DepthwiseShape::Pair kernel{sizes[2].hint, sizes[3].hint};
  if (!has_depthwise_kernel(images->dtype, channels.hint, kernel)) return std::nullopt;
  return DepthwiseCall{*images, *filters, *result, kernel, *padding};
}

/// Whether filters [C, 1, H, W] of these strides follow one another without gaps.
bool are_contiguous_filters(const ir::Dims& sizes, const ir::Dims& strides) {
  const ir::Dim expected[] = {sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], ir::Dim(1)};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != ir::Dim(1) && strides[i] != expected[i]) return false;
  }
  return true;
}

}  // namespace

ir::Trace with_depthwise_blocks(ir::Trace trace, const fusion::Target& target, std::string_view executor) {
  for (ir::BoundSymbol& symbol : trace.symbols) {
    const auto call = depthwise_of(symbol, trace);
    if (!call || !target.accepts(call->images)) continue;
    if (!are_contiguous_filters(call->filters.sizes, call->filters.strides)) continue;
    symbol = fusion::make_block(executor, kDepthwise, symbol);
    symbol.comment = "a filter for each channel";
  }
  return trace;
}

std::optional<KernelSource> depthwise_source(const ir::BoundSymbol& block, const ir::Trace& trace,
                                             const fusion::Strides& strides, const LaunchFacts& facts) {
  const auto call = depthwise_of(block.nested.front(), trace);
  if (!call || !lies_channels_last(call->images.sizes, strides.at(0))) return std::nullopt;
  if (!are_contiguous_filters(call->filters.sizes, strides.at(1))) return std::nullopt;
  const ir::Dims& sizes = call->images.sizes;
  DepthwiseShape shape;
  shape.dtype = call->images.dtype;
  shape.images = sizes[0].hint;
  shape.channels = sizes[1].hint;
  shape.size = {sizes[2].hint, sizes[3].hint};
  shape.out_size = {call->result.sizes[2].hint, call->result.sizes[3].hint};
  shape.kernel = call->kernel;
  shape.padding = call->padding;
  return emit_depthwise(shape, facts);
}

}  // namespace thunder::executors::cuda
