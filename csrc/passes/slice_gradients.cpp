#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "operators/names.h"
#include "passes/pass.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {

extern const Pass kSliceGradients;

namespace {

/// Elements of a row: of fewer, executors do not fuse what is padded.
constexpr std::int64_t kLeastRow = 16;

/// The arguments of `slice_backward`.
enum : std::uint8_t { kGradient, kSizes, kDim, kStart, kEnd, kStep, kArguments };

/// The part of one dimension that a slice takes, seen as rows of `step`.
struct Steps {
  std::size_t dim = 0;
  std::int64_t step = 1;
  std::int64_t rows = 0;
  std::int64_t before = 0;  ///< rows
  std::int64_t behind = 0;
  std::int64_t index = 0;  ///< in each row
};

/// Dimensions follow one another in memory as they are numbered, and the last without gaps.
bool is_in_order(const ir::TensorType& type) {
  const auto stride = [](const ir::Dim& dim) { return dim.hint; };
  return !type.strides.empty() && type.strides.back().hint == 1 &&
         std::ranges::is_sorted(type.strides, std::greater(), stride);
}

class Rewriter {
 public:
  Rewriter(const ir::Trace& trace, FindOperator find_operator)
      : trace_(trace), find_operator_(find_operator), uses_(trace), result_(trace.empty_copy(kSliceGradients.name)) {
    for (const ir::BoundSymbol& symbol : trace.symbols) steps_.push_back(steps_of(symbol));
  }

  ir::Trace run() {
    std::vector<bool> is_joined(trace_.symbols.size(), false);  // with the slice of a slice that it is the gradient of
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (const std::uint32_t inner = inner_of(i); inner != kNoPlace) is_joined[inner] = true;
    }
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (is_joined[i]) continue;
      if (steps_[i]) {
        add_padded(i);
      } else {
        result_.add(trace_.symbols[i]);
      }
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] std::optional<Steps> steps_of(const ir::BoundSymbol& symbol) const {
    if (symbol.op->name != "aten::slice_backward" || symbol.arguments.size() != kArguments) return std::nullopt;
    const auto number = [&](std::size_t i) { return symbol.arguments[i].get<std::int64_t>(); };
    if (number(kDim) == nullptr || number(kStart) == nullptr || number(kStep) == nullptr) return std::nullopt;
    const ir::TensorType* gradient = trace_.tensor_type(value_argument(symbol, kGradient));
    const ir::TensorType& sliced = *trace_.tensor_type(single_result(symbol));
    if (gradient == nullptr || !is_in_order(*gradient) || !is_in_order(sliced)) return std::nullopt;
    if (ir::has_symbols(*gradient) || ir::has_symbols(sliced)) return std::nullopt;
    const auto wrap = [](std::int64_t i, std::int64_t size) { return i < 0 ? i + size : i; };
    Steps steps;
    steps.dim = static_cast<std::size_t>(wrap(*number(kDim), static_cast<std::int64_t>(sliced.sizes.size())));
    steps.step = *number(kStep);
    const std::int64_t size = sliced.sizes[steps.dim].hint;
    if (steps.step < 2 || size % steps.step != 0 || element_count(*gradient) == 0) return std::nullopt;
    std::int64_t row = 1;
    for (std::size_t i = steps.dim + 1; i < sliced.sizes.size(); ++i) row *= gradient->sizes[i].hint;
    if (row < kLeastRow) return std::nullopt;
    const std::int64_t start = std::clamp<std::int64_t>(wrap(*number(kStart), size), 0, size);
    steps.rows = size / steps.step;
    steps.before = start / steps.step;
    steps.behind = steps.rows - steps.before - gradient->sizes[steps.dim].hint;
    steps.index = start % steps.step;
    return steps;
  }

  /// The gradient of a slice of the same slice, along a dimension before: `x[0::2, 1::2]`. kNoPlace: there is none.
  [[nodiscard]] std::uint32_t inner_of(std::uint32_t i) const {
    if (!steps_[i]) return kNoPlace;
    const ir::ValueId gradient = value_argument(trace_.symbols[i], kGradient);
    const std::uint32_t maker = uses_.maker(gradient);
    if (maker == kNoPlace || uses_.count(gradient) != 1) return kNoPlace;
    return steps_[maker] && steps_[maker]->dim > steps_[i]->dim ? maker : kNoPlace;
  }

  void add_padded(std::uint32_t i) {
    const ir::BoundSymbol& symbol = trace_.symbols[i];
    location_ = symbol.location;
    std::vector<Steps> each;  // by dimension
    std::uint32_t innermost = i;
    for (std::uint32_t next = i; next != kNoPlace; next = inner_of(next)) {
      each.push_back(*steps_[next]);
      innermost = next;
    }
    ir::ValueId value = value_argument(trace_.symbols[innermost], kGradient);
    ir::Dims sizes = trace_.tensor_type(single_result(symbol))->sizes;
    std::vector<std::pair<std::int64_t, std::int64_t>> pads(sizes.size());
    for (auto steps = each.rbegin(); steps != each.rend(); ++steps) {
      const auto next = static_cast<std::ptrdiff_t>(steps->dim) + 1;
      value = unsqueezed(value, steps->dim + 1);
      sizes[steps->dim] = steps->rows;
      sizes.insert(sizes.begin() + next, ir::Dim(steps->step));
      pads[steps->dim] = {steps->before, steps->behind};
      pads.insert(pads.begin() + next, {steps->index, steps->step - 1 - steps->index});
    }
    ir::BoundSymbol view = symbol;
    view.op = find_operator_(operators::kReshape, "");
    view.arguments = {ir::Argument(padded(value, pads, std::move(sizes))), symbol.arguments[kSizes]};
    result_.add(std::move(view));
  }

  ir::ValueId unsqueezed(ir::ValueId value, std::size_t dim) {
    ir::TensorType type = *result_.tensor_type(value);
    const auto place = static_cast<std::ptrdiff_t>(dim);
    type.strides.insert(type.strides.begin() + place, ir::Dim(type.sizes[dim].hint * type.strides[dim].hint));
    type.sizes.insert(type.sizes.begin() + place, ir::Dim(1));
    return call(operators::kUnsqueeze, {ir::Argument(value), ir::Argument(static_cast<std::int64_t>(dim))},
                ir::make_type(std::move(type)));
  }

  ir::ValueId padded(ir::ValueId value, const std::vector<std::pair<std::int64_t, std::int64_t>>& pads,
                     ir::Dims sizes) {
    const ir::TensorType& type = *result_.tensor_type(value);
    ir::ArgumentList numbers;  // those of the last dimension first
    for (auto pad = pads.rbegin(); pad != pads.rend(); ++pad) {
      numbers.emplace_back(pad->first);
      numbers.emplace_back(pad->second);
    }
    return call(operators::kPad, {ir::Argument(value), ir::Argument(std::move(numbers)), ir::Argument(0)},
                ir::tensor_type(type.dtype, std::move(sizes), type.device));
  }

  ir::ValueId call(const char* name, ir::ArgumentList arguments, ir::TypePtr type) {
    return ir::add_call(result_, *find_operator_(name, ""), std::move(arguments), std::move(type), {}, location_);
  }

  const ir::Trace& trace_;
  FindOperator find_operator_;
  const ir::Uses uses_;
  std::vector<std::optional<Steps>> steps_;  ///< by symbol
  ir::Trace result_;
  ir::SourceLocation location_;
};

ir::Trace pad_slice_gradients(const ir::Trace& trace, FindOperator find_operator) {
  return Rewriter(trace, find_operator).run();
}

}  // namespace

/// Writes the gradient of a slice with a step (`slice_backward` of `x[1::2]`) as a view of a padded view: every second
/// row of `[64, 8]` is one of the two columns of `[32, 2, 8]`. Padding costs what `slice_backward` does, and fuses with
/// the sum of gradients that it mostly is an argument of. Only where dimensions lie in order, the step divides the
/// sliced one, and rows are long enough to be fused.
constexpr Pass kSliceGradients{"slice_gradients", &pad_slice_gradients};

}  // namespace thunder::passes
