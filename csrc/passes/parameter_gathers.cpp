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

extern const Pass kParameterGathers;

namespace {

/// The arguments of `gather_shards`.
enum : std::uint8_t { kShard, kSize, kGroup, kGroupSize, kBucket, kDtype, kReduceDtype, kArguments };

class GatherRewriter : CollectiveRewriter {
 public:
  GatherRewriter(const ir::Trace& trace, FindOperator find_operator)
      : CollectiveRewriter(trace, find_operator, kParameterGathers.name) {}

  ir::Trace run() {
    units_ = make_units(trace_, find_gathers(), {kGroup, kBucket}, /*earliest=*/true);
    if (units_.empty()) return trace_;
    most_ = largest_unit(units_);
    start_ahead();
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      finish_for(i);
      if (!is_replaced_[i]) replaced_.apply(result_.add(trace_.symbols[i]));
    }
    finish_for(static_cast<std::uint32_t>(trace_.symbols.size()));
    replaced_.apply(result_.outputs);
    return std::move(result_);
  }

 private:
  /// Those of parameters, which are there from the beginning.
  std::vector<CollectiveRequest> find_gathers() {
    std::vector<CollectiveRequest> gathers;
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (symbol(i).op->name != operators::kGatherShards || symbol(i).arguments.size() != kArguments) continue;
      const ir::ValueId full = single_result(symbol(i));
      const bool is_read = !uses_.readers(full).empty();
      const std::uint32_t move = move_of(i);
      const ir::ValueId shard = value_argument(symbol(move == kNoPlace ? i : move), kShard);
      if (uses_.maker(shard) != kNoPlace || (!is_read && !uses_.is_output(full))) continue;
      is_replaced_[i] = true;
      if (move != kNoPlace) is_replaced_[move] = true;
      const auto end = static_cast<std::uint32_t>(trace_.symbols.size());
      gathers.push_back({i, is_read ? uses_.readers(full).front() : end, size_in_bytes(&type_of(i))});
    }
    return gathers;
  }

  /// The symbol that copies a shard from another device, for its gather alone; kNoPlace: there is none.
  [[nodiscard]] std::uint32_t move_of(std::uint32_t gather) const {
    const ir::ValueId shard = value_argument(symbol(gather), kShard);
    const std::uint32_t maker = uses_.maker(shard);
    const bool is_alone = uses_.count(shard) == 1;
    return maker != kNoPlace && is_alone && is_move(maker) ? maker : kNoPlace;
  }

  /// Starts what comes next, while it fits beside what is under way: one unit, or small ones up to the largest.
  void start_ahead() {
    while (next_start_ < units_.size() && (in_flight_ == 0 || in_flight_ + units_[next_start_].bytes <= most_)) {
      start_next();
    }
  }

  void start_next() {
    const CollectiveUnit& unit = units_[next_start_];
    const ir::ArgumentList& arguments = symbol(unit.symbols.front()).arguments;
    location_ = location_of(unit);
    ir::ArgumentList shards;
    std::vector<ir::TypePtr> types;
    for (const std::uint32_t i : unit.symbols) {
      shards.emplace_back(padded_shard(i));
      types.push_back(gathered_type(i));
    }
    start(operators::kAllGather, operators::kAllGatherCoalesced, std::move(shards),
          {arguments[kGroupSize], arguments[kGroup]}, types);
    if (const auto* bucket = arguments[kBucket].get<std::string>()) result_.symbols.back().comment = *bucket;
  }

  /// The line that reads a parameter of the unit first.
  [[nodiscard]] ir::SourceLocation location_of(const CollectiveUnit& unit) const {
    return symbol(unit.place < trace_.symbols.size() ? unit.place : unit.symbols.front()).location;
  }

  [[nodiscard]] std::int64_t rows_of_shard(std::uint32_t i) const {
    const std::int64_t count = *symbol(i).arguments[kGroupSize].get<std::int64_t>();
    return divide_up(type_of(i).sizes[0].hint, count);
  }

  /// The shard in the dtype that is sent, with as many rows as those of other processes.
  ir::ValueId padded_shard(std::uint32_t i) {
    if (const std::uint32_t move = move_of(i); move != kNoPlace) result_.add(symbol(move));
    return with_rows(cast(contiguous(value_argument(symbol(i), kShard)), type_of(i).dtype), rows_of_shard(i));
  }

  /// The shards of all processes, one behind the other.
  [[nodiscard]] ir::TypePtr gathered_type(std::uint32_t i) const {
    const ir::TensorType& full = type_of(i);
    ir::Dims sizes = full.sizes;
    sizes[0] = ir::Dim(rows_of_shard(i) * *symbol(i).arguments[kGroupSize].get<std::int64_t>());
    return ir::tensor_type(full.dtype, std::move(sizes), full.device);
  }

  /// Waits for what symbol `i` reads first; starts others meanwhile.
  void finish_for(std::uint32_t i) {
    for (; next_wait_ < units_.size() && units_[next_wait_].place == i; finish()) {
      if (next_wait_ == next_start_) start_next();
      const CollectiveUnit& unit = units_[next_wait_];
      location_ = location_of(unit);
      for (std::size_t k = 0; k < unit.symbols.size(); ++k) {
        const std::uint32_t gather = unit.symbols[k];
        replaced_.set(single_result(symbol(gather)), ir::Argument(with_rows(wait(k), type_of(gather).sizes[0].hint)));
      }
    }
    start_ahead();
  }

  std::int64_t most_ = 0;
};

ir::Trace gather_parameters(const ir::Trace& trace, FindOperator find_operator) {
  return GatherRewriter(trace, find_operator).run();
}

}  // namespace

/// Gathers parameters from their shards (`thunder::gather_shards`), those of a bucket together: waits in front of the
/// first operation that reads one, and starts the next one there, or several small ones, so that it runs meanwhile.
/// Shards of another device are copied where their gather starts.
constexpr Pass kParameterGathers{"parameter_gathers", &gather_parameters};

}  // namespace thunder::passes
