#include "passes/depthwise_gradients.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "ir/builder.h"
#include "operators/convolution_backward.h"
#include "passes/pass.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

using enum operators::ConvolutionBackward::Place;
using Place = operators::ConvolutionBackward::Place;
constexpr std::size_t kResults = 3;

const ir::ArgumentList& list_at(const ir::BoundSymbol& symbol, Place place) {
  static const ir::ArgumentList kNone;
  const auto* list = symbol.arguments[place].get<ir::ArgumentList>();
  return list == nullptr ? kNone : *list;
}

/// The number for a dimension of the images; a list of one number holds it for all of them.
std::optional<std::int64_t> number_at(const ir::ArgumentList& list, std::size_t dim) {
  const std::size_t place = list.size() == 1 ? 0 : dim;
  if (place >= list.size()) return std::nullopt;
  const auto* number = list[place].get<std::int64_t>();
  return number == nullptr ? std::nullopt : std::make_optional(*number);
}

class Rewriter {
 public:
  Rewriter(const ir::Trace& trace, PrefersConvolution prefers, FindOperator find_operator)
      : trace_(trace),
        prefers_(prefers),
        convolution_(find_operator("aten::convolution", "")),
        flip_(find_operator("aten::flip", "")),
        uses_(trace),
        result_(trace.empty_copy(kDepthwiseGradients)) {}

  ir::Trace run() {
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      const std::optional<ir::ArgumentList> padding = padding_of_gradient(symbol);
      if (!padding) {
        result_.add(symbol);
        continue;
      }
      add_convolution(symbol, *padding);
      add_others(symbol);
    }
    return std::move(result_);
  }

 private:
  /// The padding of the convolution that gives the images' gradient; nullopt: the symbol stays as it is.
  [[nodiscard]] std::optional<ir::ArgumentList> padding_of_gradient(const ir::BoundSymbol& symbol) const {
    if (symbol.op->name != operators::ConvolutionBackward::kName || !symbol.op->overload.empty()) return std::nullopt;
    if (symbol.arguments.size() != kPlaces || symbol.results.size() != kResults) return std::nullopt;
    const auto* gradient = symbol.results[0].get<ir::ValueId>();
    const ir::ArgumentList& mask = list_at(symbol, kMask);
    const bool is_wanted = mask.size() == kResults && mask[0] == ir::Argument(true);
    if (!is_wanted || gradient == nullptr || uses_.count(*gradient) == 0 || !is_depthwise(symbol)) return std::nullopt;
    const ir::TensorType& filters = *argument_type(symbol, trace_, kFilters);
    ir::ArgumentList padding;
    for (std::size_t dim = 0; dim + 2 < filters.sizes.size(); ++dim) {
      const auto step = number_at(list_at(symbol, kStride), dim);
      const auto before = number_at(list_at(symbol, kPadding), dim);
      const auto dilation = number_at(list_at(symbol, kDilation), dim);
      if (step != 1 || !before || !dilation) return std::nullopt;
      const std::int64_t reach = *dilation * (filters.sizes[dim + 2].hint - 1);
      if (*before > reach) return std::nullopt;
      padding.emplace_back(reach - *before);
    }
    return padding;
  }

  /// Images with at least two channels, each of which has one filter, in memory that the target's convolution takes
  /// and gives.
  [[nodiscard]] bool is_depthwise(const ir::BoundSymbol& symbol) const {
    const ir::TensorType* given = argument_type(symbol, trace_, kGradient);
    const ir::TensorType* images = argument_type(symbol, trace_, kImages);
    const ir::TensorType* filters = argument_type(symbol, trace_, kFilters);
    const ir::TensorType* made = trace_.tensor_type(std::get<ir::ValueId>(symbol.results[0].content));
    if (!is_float(given) || images == nullptr || filters == nullptr || made == nullptr) return false;
    const std::size_t rank = given->sizes.size();
    if (rank < 3 || images->sizes.size() != rank || filters->sizes.size() != rank) return false;
    if (ir::has_symbols(*filters) || !is_dense(*filters) || filters->dtype != given->dtype) return false;
    const std::int64_t channels = filters->sizes[0].hint;
    const bool is_one_each = channels > 1 && filters->sizes[1] == ir::Dim(1) && images->sizes[1] == ir::Dim(channels) &&
                             symbol.arguments[kGroups] == ir::Argument(channels);
    const bool is_plain = symbol.arguments[kTransposed] == ir::Argument(false);
    const bool lies_alike = is_channels_last(*given) == is_channels_last(*made) && made->dtype == given->dtype &&
                            is_dense(*given) && is_dense(*made);
    return is_one_each && is_plain && lies_alike && prefers_(*given);
  }

  [[nodiscard]] static bool is_channels_last(const ir::TensorType& type) { return type.strides[1] == ir::Dim(1); }

  void add_convolution(const ir::BoundSymbol& symbol, const ir::ArgumentList& padding) {
    const ir::TensorType& filters = *argument_type(symbol, trace_, kFilters);
    ir::ArgumentList dims;
    for (std::size_t dim = 2; dim < filters.sizes.size(); ++dim) dims.emplace_back(static_cast<std::int64_t>(dim));
    const ir::ValueId mirrored =
        ir::add_call(result_, *flip_, {symbol.arguments[kFilters], ir::Argument(std::move(dims))},
                     ir::make_type(filters), {}, symbol.location);
    ir::BoundSymbol convolution;
    convolution.op = convolution_;
    convolution.arguments = {
        symbol.arguments[kGradient], ir::Argument(mirrored),      ir::Argument(),      symbol.arguments[kStride],
        ir::Argument(padding),       symbol.arguments[kDilation], ir::Argument(false), symbol.arguments[kOutputPadding],
        symbol.arguments[kGroups]};
    convolution.results = {symbol.results[0]};
    convolution.location = symbol.location;
    result_.add(std::move(convolution));
  }

  /// The gradients of filters and bias, where they are wanted.
  void add_others(const ir::BoundSymbol& symbol) {
    ir::BoundSymbol rest = symbol;
    auto& mask = std::get<ir::ArgumentList>(rest.arguments[kMask].content);
    mask[0] = ir::Argument(false);
    rest.results[0] = ir::Argument();
    rest.nested.clear();
    if (std::ranges::find(mask, ir::Argument(true)) != mask.end()) result_.add(std::move(rest));
  }

  const ir::Trace& trace_;
  PrefersConvolution prefers_;
  const ir::Operator* convolution_;
  const ir::Operator* flip_;
  ir::Uses uses_;
  ir::Trace result_;
};

}  // namespace

ir::Trace convolve_depthwise_gradients(const ir::Trace& trace, PrefersConvolution prefers,
                                       ir::FindOperator find_operator) {
  return Rewriter(trace, prefers, find_operator).run();
}

}  // namespace thunder::passes
