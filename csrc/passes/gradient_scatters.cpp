#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/rounding.h"
#include "ir/builder.h"
#include "operators/names.h"
#include "passes/collective_units.h"
#include "passes/pass.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {

extern const Pass kGradientScatters;

namespace {

/// The arguments of `scatter_gradient`.
enum : std::uint8_t { kGradient, kRows, kDtype, kGroup, kGroupSize, kBucket, kReduceDtype, kArguments };

class ScatterRewriter : CollectiveRewriter {
 public:
  ScatterRewriter(const ir::Trace& trace, FindOperator find_operator)
      : CollectiveRewriter(trace, find_operator, kGradientScatters.name) {}

  ir::Trace run() {
    units_ = make_units(trace_, find_scatters(), {kGroup, kBucket}, /*earliest=*/false);
    if (units_.empty()) return trace_;
    // Full gradients live until somebody waits: those of two units at most.
    const std::int64_t most = 2 * largest_unit(units_);
    const auto start_at = [&](std::uint32_t place) {
      while (next_start_ < units_.size() && units_[next_start_].place == place) {
        while (next_wait_ < next_start_ && in_flight_ + units_[next_start_].bytes > most) finish_next();
        start_next();
      }
    };
    start_at(0);
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (!is_replaced_[i] && !follows_shard(i)) result_.add(trace_.symbols[i]);
      start_at(i + 1);
    }
    while (next_wait_ < units_.size()) finish_next();
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (follows_shard(i)) replaced_.apply(result_.add(trace_.symbols[i]));
    }
    replaced_.apply(result_.outputs);
    return std::move(result_);
  }

 private:
  [[nodiscard]] std::int64_t count_of(std::uint32_t i) const {
    return *symbol(i).arguments[kGroupSize].get<std::int64_t>();
  }
  [[nodiscard]] const ir::TensorType& gradient_type(std::uint32_t i) const {
    return *trace_.tensor_type(value_argument(symbol(i), kGradient));
  }
  /// The dtype in which gradients are summed.
  [[nodiscard]] ir::Dtype sum_dtype(std::uint32_t i) const {
    const auto* dtype = symbol(i).arguments[kReduceDtype].get<ir::Dtype>();
    return dtype == nullptr ? gradient_type(i).dtype : *dtype;
  }
  /// Sums of these could overflow, so that they are divided before.
  [[nodiscard]] bool is_divided_before(std::uint32_t i) const { return sum_dtype(i) == ir::Dtype::kFloat16; }

  /// Whether a symbol only averages a gradient which the trace returns, or copies it to another device.
  [[nodiscard]] bool is_last(std::uint32_t i) const {
    if (symbol(i).op->name != operators::kAverageGradient && !is_move(i)) return false;
    return std::ranges::all_of(uses_.readers(single_result(symbol(i))), [&](std::uint32_t k) { return is_last(k); });
  }
  /// Whether a symbol takes what a unit gives, directly or after another one that does: the shards that other groups of
  /// processes have of the same rows are averaged, those that the processor keeps are copied to it.
  [[nodiscard]] bool follows_shard(std::uint32_t i) const {
    if (!is_last(i)) return false;
    const std::uint32_t maker = uses_.maker(value_argument(symbol(i), kGradient));
    return maker != kNoPlace && (is_replaced_[maker] || follows_shard(maker));
  }

  /// Those whose results, averaged or copied perhaps, are gradients that the trace returns. Place zero: it takes the
  /// gradient as an input.
  std::vector<CollectiveRequest> find_scatters() {
    std::vector<CollectiveRequest> scatters;
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (symbol(i).op->name != operators::kScatterGradient || symbol(i).arguments.size() != kArguments) continue;
      const auto readers = uses_.readers(single_result(symbol(i)));
      if (!std::ranges::all_of(readers, [&](std::uint32_t reader) { return is_last(reader); })) continue;
      is_replaced_[i] = true;
      const ir::ValueId gradient = value_argument(symbol(i), kGradient);
      scatters.push_back({i, uses_.maker(gradient) + 1, size_in_bytes(&gradient_type(i))});
    }
    return scatters;
  }

  [[nodiscard]] std::int64_t rows_of_shard(std::uint32_t i) const {
    return divide_up(gradient_type(i).sizes[0].hint, count_of(i));
  }

  void start_next() {
    const CollectiveUnit& unit = units_[next_start_];
    const ir::BoundSymbol& first = symbol(unit.symbols.front());
    location_ = unit.place == 0 ? first.location : symbol(unit.place - 1).location;
    ir::ArgumentList given;
    std::vector<ir::TypePtr> types;
    for (const std::uint32_t i : unit.symbols) {
      given.emplace_back(padded_gradient(i));
      types.push_back(scattered_type(i));
    }
    start(operators::kReduceScatter, operators::kReduceScatterCoalesced, std::move(given),
          {"sum", first.arguments[kGroupSize], first.arguments[kGroup]}, types);
    if (const auto* bucket = first.arguments[kBucket].get<std::string>()) result_.symbols.back().comment = *bucket;
  }

  [[nodiscard]] ir::TypePtr scattered_type(std::uint32_t i) const {
    ir::Dims sizes = gradient_type(i).sizes;
    sizes[0] = ir::Dim(rows_of_shard(i));
    return ir::tensor_type(sum_dtype(i), std::move(sizes), gradient_type(i).device);
  }

  /// The gradient with rows for all processes, without gaps.
  ir::ValueId padded_gradient(std::uint32_t i) {
    const ir::ValueId gradient = cast(contiguous(value_argument(symbol(i), kGradient)), sum_dtype(i));
    const ir::ValueId padded = with_rows(gradient, rows_of_shard(i) * count_of(i));
    return is_divided_before(i) ? divided(padded, i) : padded;
  }

  void finish_next() {
    const CollectiveUnit& unit = units_[next_wait_];
    location_ = symbol(unit.symbols.front()).location;
    for (std::size_t k = 0; k < unit.symbols.size(); ++k) {
      const std::uint32_t i = unit.symbols[k];
      ir::ValueId value = wait(k);
      if (!is_divided_before(i)) value = divided(value, i);
      value = with_rows(cast(value, type_of(i).dtype), type_of(i).sizes[0].hint);
      replaced_.set(single_result(symbol(i)), ir::Argument(value));
    }
    finish();
  }

  ir::ValueId divided(ir::ValueId value, std::uint32_t i) {
    return call(operators::kMul, "Scalar", {ir::Argument(value), 1.0 / static_cast<double>(count_of(i))},
                result_.value(value).type);
  }
};

ir::Trace scatter_gradients(const ir::Trace& trace, FindOperator find_operator) {
  return ScatterRewriter(trace, find_operator).run();
}

}  // namespace

/// Averages gradients over processes, of which each gets its shard (`thunder::scatter_gradient`): a `reduce_scatter`
/// starts behind the last gradient of its bucket, while the backward goes on. Two at most are under way at a time,
/// since a full gradient lives until the wait.
constexpr Pass kGradientScatters{"gradient_scatters", &scatter_gradients};

}  // namespace thunder::passes
