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

extern const Pass kParameterGathers;

namespace {

/// The arguments of `gather_shards`.
enum : std::uint8_t { kShard, kSize, kGroup, kGroupSize, kBucket, kArguments };

class Rewriter {
 public:
  Rewriter(const ir::Trace& trace, FindOperator find_operator)
      : trace_(trace),
        find_operator_(find_operator),
        uses_(trace),
        is_gathered_(trace.symbols.size(), false),
        replaced_(trace.value_count()),
        result_(trace.empty_copy(kParameterGathers.name)) {}

  ir::Trace run() {
    units_ = make_units(trace_, find_gathers(), kGroup, /*earliest=*/true);
    if (units_.empty()) return trace_;
    most_ = largest_unit(units_);
    started_.resize(units_.size());
    start_ahead();
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      finish_for(i);
      if (!is_gathered_[i]) replaced_.apply(result_.add(trace_.symbols[i]));
    }
    finish_for(static_cast<std::uint32_t>(trace_.symbols.size()));
    replaced_.apply(result_.outputs);
    return std::move(result_);
  }

 private:
  [[nodiscard]] const ir::BoundSymbol& symbol(std::uint32_t i) const { return trace_.symbols[i]; }
  [[nodiscard]] const ir::TensorType& whole_type(std::uint32_t i) const {
    return *trace_.tensor_type(single_result(symbol(i)));
  }

  /// Those of parameters, which are there from the beginning.
  std::vector<CollectiveRequest> find_gathers() {
    std::vector<CollectiveRequest> gathers;
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (symbol(i).op->name != operators::kGatherShards || symbol(i).arguments.size() != kArguments) continue;
      const ir::ValueId whole = single_result(symbol(i));
      const bool is_read = !uses_.readers(whole).empty();
      if (uses_.maker(value_argument(symbol(i), kShard)) != kNoPlace || (!is_read && !uses_.is_output(whole))) continue;
      is_gathered_[i] = true;
      const auto end = static_cast<std::uint32_t>(trace_.symbols.size());
      gathers.push_back({i, is_read ? uses_.readers(whole).front() : end, size_in_bytes(&whole_type(i))});
    }
    return gathers;
  }

  /// Starts what comes next, while it fits beside what is under way: one unit, or small ones up to the largest.
  void start_ahead() {
    while (next_start_ < units_.size() && (in_flight_ == 0 || in_flight_ + units_[next_start_].bytes <= most_)) start();
  }

  void start() {
    const CollectiveUnit& unit = units_[next_start_];
    const ir::BoundSymbol& first = symbol(unit.symbols.front());
    location_ = location_of(unit);
    ir::ArgumentList shards;
    for (const std::uint32_t i : unit.symbols) shards.push_back(symbol(i).arguments[kShard]);
    std::vector<ir::ValueId>& values = started_[next_start_];
    for (const std::uint32_t i : unit.symbols) values.push_back(result_.add_value(gathered_type(i)));
    if (values.size() == 1) {
      add(operators::kAllGather, {shards[0], first.arguments[kGroupSize], first.arguments[kGroup]}, {values[0]});
    } else {
      add(operators::kAllGatherCoalesced,
          {ir::Argument(std::move(shards)), first.arguments[kGroupSize], first.arguments[kGroup]},
          {ir::Argument(ir::ArgumentList(values.begin(), values.end()))});
    }
    result_.symbols.back().comment = comment_of(unit);
    in_flight_ += unit.bytes;
    ++next_start_;
  }

  /// The line that reads a parameter of the unit first.
  [[nodiscard]] ir::SourceLocation location_of(const CollectiveUnit& unit) const {
    return symbol(unit.place < trace_.symbols.size() ? unit.place : unit.symbols.front()).location;
  }
  [[nodiscard]] std::string comment_of(const CollectiveUnit& unit) const {
    const auto* bucket = symbol(unit.symbols.front()).arguments[kBucket].get<std::string>();
    return bucket == nullptr ? std::string() : *bucket;
  }

  /// The shards of all processes, one behind the other.
  [[nodiscard]] ir::TypePtr gathered_type(std::uint32_t i) const {
    const ir::TensorType& shard = *trace_.tensor_type(value_argument(symbol(i), kShard));
    ir::Dims sizes = shard.sizes;
    sizes[0] = ir::Dim(sizes[0].hint * *symbol(i).arguments[kGroupSize].get<std::int64_t>());
    return ir::tensor_type(shard.dtype, std::move(sizes), shard.device);
  }

  /// Waits for what symbol `i` reads first; starts others meanwhile.
  void finish_for(std::uint32_t i) {
    for (; next_wait_ < units_.size() && units_[next_wait_].place == i; ++next_wait_) {
      if (next_wait_ == next_start_) start();
      const CollectiveUnit& unit = units_[next_wait_];
      location_ = location_of(unit);
      for (std::size_t k = 0; k < unit.symbols.size(); ++k) {
        const ir::ValueId started = started_[next_wait_][k];
        const ir::ValueId gathered =
            call(operators::kWaitTensor, "", {ir::Argument(started)}, result_.value(started).type);
        replaced_.set(single_result(symbol(unit.symbols[k])), ir::Argument(without_padding(gathered, unit.symbols[k])));
      }
      in_flight_ -= unit.bytes;
    }
    start_ahead();
  }

  ir::ValueId without_padding(ir::ValueId gathered, std::uint32_t i) {
    const ir::TensorType& whole = whole_type(i);
    const std::int64_t rows = whole.sizes.empty() ? 1 : whole.sizes[0].hint;
    ir::TensorType type = *result_.tensor_type(gathered);
    if (type.sizes[0].hint != rows) {
      type.sizes[0] = ir::Dim(rows);
      gathered =
          call(operators::kSlice, "Tensor", {ir::Argument(gathered), 0, 0, rows, 1}, ir::make_type(std::move(type)));
    }
    if (!whole.sizes.empty()) return gathered;
    return call(operators::kView, "", {ir::Argument(gathered), ir::ArgumentList()},
                ir::tensor_type(whole.dtype, {}, whole.device));
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
  std::vector<bool> is_gathered_;  ///< by symbol: part of a unit
  ir::Substitution replaced_;
  ir::Trace result_;
  ir::SourceLocation location_;
  std::vector<CollectiveUnit> units_;
  std::vector<std::vector<ir::ValueId>> started_;  ///< by unit
  std::size_t next_start_ = 0;
  std::size_t next_wait_ = 0;
  std::int64_t in_flight_ = 0;
  std::int64_t most_ = 0;
};

ir::Trace gather_parameters(const ir::Trace& trace, FindOperator find_operator) {
  return Rewriter(trace, find_operator).run();
}

}  // namespace

/// Gathers parameters from their shards (`thunder::gather_shards`), those of a bucket together: waits in front of the
/// first operation that reads one, and starts the next one there, or several small ones, so that it runs meanwhile.
constexpr Pass kParameterGathers{"parameter_gathers", &gather_parameters};

}  // namespace thunder::passes
