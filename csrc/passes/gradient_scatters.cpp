#include <cstdint>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/substitution.h"
#include "operators/names.h"
#include "passes/pass.h"
#include "passes/shard_collectives.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {

extern const Pass kGradientScatters;

namespace {

/// The arguments of `scatter_gradient`.
enum : std::uint8_t { kGradient, kGroup, kGroupSize, kBucket, kArguments };

class Rewriter {
 public:
  Rewriter(const ir::Trace& trace, FindOperator find_operator)
      : trace_(trace),
        find_operator_(find_operator),
        uses_(trace),
        is_scattered_(trace.symbols.size(), false),
        replaced_(trace.value_count()),
        result_(trace.empty_copy(kGradientScatters.name)) {}

  ir::Trace run() {
    units_ = make_units(trace_, find_scatters(), kGroup, /*earliest=*/false);
    if (units_.empty()) return trace_;
    // Whole gradients live until somebody waits: those of two units at most.
    const std::int64_t most = 2 * largest_unit(units_);
    const auto start_at = [&](std::uint32_t place) {
      for (; next_start_ < units_.size() && units_[next_start_].place == place; ++next_start_) {
        while (next_wait_ < next_start_ && in_flight_ + units_[next_start_].bytes > most) finish();
        start(units_[next_start_]);
      }
    };
    start_at(0);
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (!is_scattered_[i]) result_.add(trace_.symbols[i]);
      start_at(i + 1);
    }
    while (next_wait_ < units_.size()) finish();
    replaced_.apply(result_.outputs);
    return std::move(result_);
  }

 private:
  [[nodiscard]] const ir::BoundSymbol& symbol(std::uint32_t i) const { return trace_.symbols[i]; }
  [[nodiscard]] const ir::TensorType& shard_type(std::uint32_t i) const {
    return *trace_.tensor_type(single_result(symbol(i)));
  }
  [[nodiscard]] std::int64_t count_of(std::uint32_t i) const {
    return *symbol(i).arguments[kGroupSize].get<std::int64_t>();
  }
  /// Sums of these could overflow, so that they are divided before.
  [[nodiscard]] bool is_divided_before(std::uint32_t i) const { return shard_type(i).dtype == ir::Dtype::kFloat16; }

  /// Those whose results are gradients that the trace returns. Place zero: it takes the gradient as an input.
  std::vector<CollectiveRequest> find_scatters() {
    std::vector<CollectiveRequest> scatters;
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (symbol(i).op->name != operators::kScatterGradient || symbol(i).arguments.size() != kArguments) continue;
      if (!uses_.readers(single_result(symbol(i))).empty()) continue;
      is_scattered_[i] = true;
      const ir::ValueId gradient = value_argument(symbol(i), kGradient);
      scatters.push_back({i, uses_.maker(gradient) + 1, size_in_bytes(trace_.tensor_type(gradient))});
    }
    return scatters;
  }

  void start(const CollectiveUnit& unit) {
    const ir::BoundSymbol& first = symbol(unit.symbols.front());
    location_ = unit.place == 0 ? first.location : symbol(unit.place - 1).location;
    ir::ArgumentList given;
    for (const std::uint32_t i : unit.symbols) given.emplace_back(padded(i));
    std::vector<ir::ValueId> values;
    for (const std::uint32_t i : unit.symbols) values.push_back(result_.add_value(contiguous(shard_type(i))));
    const ir::Argument& count = first.arguments[kGroupSize];
    const ir::Argument& group = first.arguments[kGroup];
    if (values.size() == 1) {
      add(operators::kReduceScatter, {given[0], "sum", count, group}, {values[0]});
    } else {
      add(operators::kReduceScatterCoalesced, {ir::Argument(std::move(given)), "sum", count, group},
          {ir::Argument(ir::ArgumentList(values.begin(), values.end()))});
    }
    if (const auto* bucket = first.arguments[kBucket].get<std::string>()) result_.symbols.back().comment = *bucket;
    started_.push_back(std::move(values));
    in_flight_ += unit.bytes;
  }

  /// The gradient with rows for all processes, without gaps.
  ir::ValueId padded(std::uint32_t i) {
    ir::ValueId value = value_argument(symbol(i), kGradient);
    ir::Dims sizes = shard_type(i).sizes;
    sizes[0] = ir::Dim(sizes[0].hint * count_of(i));
    const ir::TensorType given = *trace_.tensor_type(value);
    const ir::TypePtr type = ir::tensor_type(given.dtype, sizes, given.device);
    if (given.sizes.empty()) {
      value = call(operators::kReshape, "", {ir::Argument(value), ir::ArgumentList{1}},
                   ir::tensor_type(given.dtype, {ir::Dim(1)}, given.device));
    }
    const std::int64_t missing = sizes[0].hint - (given.sizes.empty() ? 1 : given.sizes[0].hint);
    if (missing != 0) {
      ir::ArgumentList pads(2 * sizes.size(), ir::Argument(0));  // those of the last dimension first
      pads.back() = ir::Argument(missing);
      value = call(operators::kPad, "", {ir::Argument(value), ir::Argument(std::move(pads)), 0}, type);
    }
    if (!ir::is_contiguous(*result_.tensor_type(value)))
      value = call(operators::kClone, "", {ir::Argument(value), ir::MemoryFormat::kContiguous}, type);
    return is_divided_before(i) ? divided(value, i) : value;
  }

  void finish() {
    const CollectiveUnit& unit = units_[next_wait_];
    location_ = symbol(unit.symbols.front()).location;
    for (std::size_t k = 0; k < unit.symbols.size(); ++k) {
      const std::uint32_t i = unit.symbols[k];
      const ir::ValueId started = started_[next_wait_][k];
      ir::ValueId value = call(operators::kWaitTensor, "", {ir::Argument(started)}, result_.value(started).type);
      if (!is_divided_before(i)) value = divided(value, i);
      replaced_.set(single_result(symbol(i)), ir::Argument(value));
    }
    in_flight_ -= unit.bytes;
    ++next_wait_;
  }

  ir::ValueId divided(ir::ValueId value, std::uint32_t i) {
    return call(operators::kMul, "Scalar", {ir::Argument(value), 1.0 / static_cast<double>(count_of(i))},
                result_.value(value).type);
  }

  static ir::TypePtr contiguous(const ir::TensorType& type) {
    return ir::tensor_type(type.dtype, type.sizes, type.device);
  }
  void add(const char* name, ir::ArgumentList arguments, ir::ArgumentList results) {
    ir::add_symbol(result_, *find_operator_(name, ""), std::move(arguments), std::move(results)).location = location_;
  }
  ir::ValueId call(const char* name, const char* overload, ir::ArgumentList arguments, const ir::TypePtr& type) {
    return ir::add_call(result_, *find_operator_(name, overload), std::move(arguments), type, {}, location_);
  }

  const ir::Trace& trace_;
  FindOperator find_operator_;
  ir::Uses uses_;
  std::vector<bool> is_scattered_;  ///< by symbol: part of a unit
  ir::Substitution replaced_;
  ir::Trace result_;
  ir::SourceLocation location_;
  std::vector<CollectiveUnit> units_;
  std::vector<std::vector<ir::ValueId>> started_;  ///< by unit
  std::size_t next_start_ = 0;
  std::size_t next_wait_ = 0;
  std::int64_t in_flight_ = 0;
};

ir::Trace scatter_gradients(const ir::Trace& trace, FindOperator find_operator) {
  return Rewriter(trace, find_operator).run();
}

}  // namespace

/// Averages gradients over processes, of which each gets its shard (`thunder::scatter_gradient`): a `reduce_scatter`
/// starts behind the last gradient of its bucket, while the backward goes on. Two at most are under way at a time,
/// since a whole gradient lives until the wait.
constexpr Pass kGradientScatters{"gradient_scatters", &scatter_gradients};

}  // namespace thunder::passes
