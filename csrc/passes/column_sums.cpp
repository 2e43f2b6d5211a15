#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/trace_sizes.h"
#include "operators/convolution_backward.h"
#include "operators/facts.h"
#include "operators/names.h"
#include "operators/reorderings.h"
#include "passes/pass.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {

extern const Pass kColumnSums;

namespace {

using Convolution = operators::ConvolutionBackward;
enum : std::size_t { kOfImages, kOfFilters, kOfBias };  // results of `Convolution`

/// A value, and which of its dimensions are summed.
struct Summed {
  ir::ValueId value;
  std::vector<bool> is_reduced;  ///< by dimension
};

/// The sum of a permuted value, as one of that value; nullopt: what is kept would be in another order.
std::optional<Summed> before_permutation(const Summed& sum, ir::ValueId source, const std::vector<std::size_t>& order) {
  Summed made{source, std::vector<bool>(order.size(), false)};
  std::size_t next = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    made.is_reduced[order[i]] = sum.is_reduced[i];
    if (sum.is_reduced[i]) continue;
    if (order[i] < next) return std::nullopt;
    next = order[i];
  }
  return made;
}

/// The sum of a reshaped value, as one of that value; nullopt: part of a dimension would be summed.
std::optional<Summed> before_reshape(const Summed& sum, ir::ValueId source, const ir::Dims& from, const ir::Dims& to) {
  Summed made{source, std::vector<bool>(from.size(), true)};
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < from.size() || j < to.size()) {
    std::int64_t of_from = 1;
    std::int64_t of_to = 1;
    const std::size_t begin = i;
    std::optional<bool> is_reduced;
    do {  // neighbours on both sides that are the same elements
      if (j < to.size() && (of_to <= of_from || i == from.size())) {
        if (to[j].hint != 1 && is_reduced.value_or(sum.is_reduced[j]) != sum.is_reduced[j]) return std::nullopt;
        if (to[j].hint != 1) is_reduced = sum.is_reduced[j];
        of_to *= to[j++].hint;
      } else {
        of_from *= from[i++].hint;
      }
    } while (of_from != of_to && (i < from.size() || j < to.size()));
    if (of_from != of_to) return std::nullopt;
    for (std::size_t k = begin; k < i; ++k) made.is_reduced[k] = from[k].hint == 1 || is_reduced.value_or(true);
  }
  return made;
}

class Rewriter {
 public:
  Rewriter(const ir::Trace& trace, FindOperator find_operator)
      : trace_(trace),
        sum_(find_operator(operators::kSum, "dim_IntList")),
        reshape_(find_operator(operators::kReshape, "")),
        uses_(trace),
        result_(trace.empty_copy(kColumnSums.name)) {}

  ir::Trace run() {
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      if (symbol.op == sum_ ? add_sum(symbol) : add_convolution(symbol)) continue;
      result_.add(symbol);
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool may_sum(ir::ValueId id) const {
    const ir::TensorType* type = trace_.tensor_type(id);
    return is_on_gpu(type) && is_float(type) && !ir::has_symbols(*type);
  }

  /// The gradient of a convolution's bias is a sum, which PyTorch computes by itself.
  bool add_convolution(const ir::BoundSymbol& symbol) {
    if (symbol.op->name != Convolution::kName || symbol.results.size() != 3) return false;
    const ir::ValueId gradient = value_argument(symbol, Convolution::kGradient);
    const auto* bias = symbol.results[kOfBias].get<ir::ValueId>();
    const auto* mask = symbol.arguments[Convolution::kMask].get<ir::ArgumentList>();
    if (bias == nullptr || mask == nullptr || mask->size() != 3 || !may_sum(gradient)) return false;
    const ir::TensorType& type = *trace_.tensor_type(gradient);
    const bool has_columns = type.sizes.size() > 2 && type.strides[1].hint == 1 && is_dense(type);
    const bool is_bias = (*mask)[kOfBias] == ir::Argument(true) && trace_.tensor_type(*bias)->dtype == type.dtype;
    if (!has_columns || !is_bias || uses_.count(*bias) == 0) return false;
    std::vector<bool> is_reduced(type.sizes.size(), true);
    is_reduced[1] = false;
    add_sum_of(from_maker({gradient, is_reduced}).value_or(Summed{gradient, is_reduced}), *bias, symbol.location,
               ir::Argument());
    const bool needs_more = std::ranges::any_of(std::array{kOfImages, kOfFilters},
                                                [&](std::size_t i) { return (*mask)[i] == ir::Argument(true); });
    if (!needs_more) return true;
    ir::BoundSymbol rest = symbol;
    std::get<ir::ArgumentList>(rest.arguments[Convolution::kMask].content)[kOfBias] = ir::Argument(false);
    rest.results[kOfBias] = ir::Argument();
    rest.nested.clear();
    result_.add(std::move(rest));
    return true;
  }

  bool add_sum(const ir::BoundSymbol& symbol) {
    const ir::ValueId value = value_argument(symbol, 0);
    const ir::ValueId result = single_result(symbol);
    const auto* dims = symbol.arguments[1].get<ir::ArgumentList>();
    if (!may_sum(value) || dims == nullptr || dims->empty()) return false;
    const std::size_t rank = trace_.tensor_type(value)->sizes.size();
    if (rank == 0) return false;  // `dims` are 0 and -1 there
    Summed sum{value, std::vector<bool>(rank, false)};
    for (const ir::Argument& dim : *dims) {
      if (!dim.is<std::int64_t>()) return false;
      sum.is_reduced[wrap_dim(std::get<std::int64_t>(dim.content), rank)] = true;
    }
    const auto made = from_maker(sum);
    if (!made || !is_contiguous(*trace_.tensor_type(result))) return false;
    add_sum_of(*made, result, symbol.location, symbol.arguments[3]);
    return true;
  }

  /// The sum as one of the value that the summed one is a view of, where an operation made that which may fuse.
  [[nodiscard]] std::optional<Summed> from_maker(Summed sum) const {
    bool is_moved = false;
    while (true) {
      const std::uint32_t maker = uses_.maker(sum.value);
      if (maker == kNoPlace) return std::nullopt;
      const ir::BoundSymbol& symbol = trace_.symbols[maker];
      const ir::ValueId source = value_argument(symbol, 0);
      const ir::TensorType* type = trace_.tensor_type(source);
      if (type == nullptr || !may_sum(source)) return std::nullopt;
      const auto order = operators::permutation_of(symbol, type->sizes.size());
      std::optional<Summed> made;
      if (order) {
        made = before_permutation(sum, source, *order);
      } else if (operators::is_reshape(*symbol.op)) {
        made = before_reshape(sum, source, type->sizes, trace_.tensor_type(sum.value)->sizes);
      } else {
        const bool may_fuse = is_pure(symbol) && !operators::is_view(*symbol.op) &&
                              operators::find_matmul(*symbol.op) == nullptr &&
                              !operators::has_fact(*symbol.op, operators::Fact::kReadsFromMemory);
        return is_moved && may_fuse ? std::make_optional(std::move(sum)) : std::nullopt;
      }
      if (!made) return std::nullopt;
      sum = *std::move(made);
      is_moved = true;
    }
  }

  void add_sum_of(const Summed& sum, ir::ValueId result, const ir::SourceLocation& location, ir::Argument dtype) {
    const ir::TensorType& type = *trace_.tensor_type(sum.value);
    const ir::TensorType& wanted = *trace_.tensor_type(result);
    ir::ArgumentList dims;
    ir::Dims kept;
    for (std::size_t i = 0; i < sum.is_reduced.size(); ++i) {
      if (sum.is_reduced[i]) {
        dims.emplace_back(static_cast<std::int64_t>(i));
      } else {
        kept.push_back(type.sizes[i]);
      }
    }
    ir::ArgumentList arguments{ir::Argument(sum.value), ir::Argument(std::move(dims)), ir::Argument(false),
                               std::move(dtype)};
    ir::BoundSymbol last;
    last.op = sum_;
    last.arguments = std::move(arguments);
    last.results = {ir::Argument(result)};
    last.location = location;
    if (kept != wanted.sizes) {
      const ir::ValueId flat = result_.add_value(ir::tensor_type(wanted.dtype, std::move(kept), wanted.device));
      last.results = {ir::Argument(flat)};
      result_.add(last);
      ir::ArgumentList sizes;
      for (const ir::Dim& size : wanted.sizes) sizes.emplace_back(size.hint);
      last.op = reshape_;
      last.arguments = {ir::Argument(flat), ir::Argument(std::move(sizes))};
      last.results = {ir::Argument(result)};
    }
    result_.add(std::move(last));
  }

  const ir::Trace& trace_;
  const ir::Operator* sum_;
  const ir::Operator* reshape_;
  const ir::Uses uses_;
  ir::Trace result_;
};

ir::Trace sum_where_made(const ir::Trace& trace, FindOperator find_operator) {
  return Rewriter(trace, find_operator).run();
}

}  // namespace

/// On a GPU, sums gradients of biases where the gradients are made: the sum of a permuted or reshaped value is written
/// as one of that value, and the gradient of a convolution's bias, with channels last, as a sum of its own. Both then
/// fuse with what makes the gradient.
constexpr Pass kColumnSums{"column_sums", &sum_where_made};

}  // namespace thunder::passes
