#include "fusion/batches.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <utility>

#include "fusion/block_results.h"
#include "fusion/buffer_regions.h"
#include "fusion/region.h"
#include "ir/symbol_values.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

constexpr std::size_t kMostMembers = 256;
/// Work that a batch must save to be worth a kernel of its own: an operation alone would need none. A `cat` of PyTorch
/// takes as long to launch as two kernels.
constexpr int kLeastWeight = 4;
constexpr int kWeightOfKernel = 2;
constexpr int kWeightOfOperation = 1;

/// A kernel, or an operation that could be one, and where it may stand: in front of a symbol from the first place to
/// the last.
struct Candidate {
  std::uint32_t place = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  int weight = 0;
  bool is_taken = false;
};

struct Batch {
  std::uint32_t place = 0;
  std::vector<std::uint32_t> members;  ///< places of symbols, ascending
};

/// Adds how a tensor is read: its dtype, and whether vectors divide its size.
void add_to_key(const ir::TensorType& type, std::string& key) {
  constexpr int kWidest = 3;
  const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(passes::element_count(type), 1));
  key += std::to_string(static_cast<int>(type.dtype)) + "/" +
         std::to_string(std::min(std::countr_zero(count), kWidest)) + ",";
}

class Batcher {
 public:
  Batcher(const ir::Trace& trace, const BatchModel& model)
      : trace_(trace),
        model_(model),
        uses_(trace),
        aliases_(trace),
        last_use_(aliases_.last_uses(trace)),
        candidate_at_(trace.symbols.size()),
        result_(trace.empty_copy(kKernelBatches)) {}

  std::optional<ir::Trace> run() {
    find_candidates();
    find_barriers();
    find_conflicts();
    std::map<std::string, std::vector<Candidate*>> alike;
    std::vector<const std::string*> order;  // in order of appearance
    for (std::uint32_t i = 0; i < candidate_at_.size(); ++i) {
      if (!candidate_at_[i]) continue;
      const auto [entry, is_new] = alike.try_emplace(key_of(trace_.symbols[i]));
      if (is_new) order.push_back(&entry->first);
      entry->second.push_back(&*candidate_at_[i]);
    }
    for (const std::string* key : order) batch(alike.at(*key));
    if (batches_.empty()) return std::nullopt;
    assemble();
    return std::move(result_);
  }

 private:
  template <typename Visitor>
  static void for_each_value(const ir::BoundSymbol& symbol, Visitor&& visit) {
    passes::for_each_argument(symbol, visit);
    passes::for_each_result(symbol, visit);
  }

  // --- candidates

  void find_candidates() {
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      const ir::BoundSymbol& symbol = trace_.symbols[i];
      const bool is_kernel = fusion::is_kernel(symbol) && is_fused_by(symbol, model_.executor);
      if ((!is_kernel && !is_small_operation(symbol)) || !is_small(symbol)) continue;
      Candidate candidate{i, 0, static_cast<std::uint32_t>(trace_.symbols.size()),
                          is_kernel || is_concatenation(symbol) ? kWeightOfKernel : kWeightOfOperation};
      passes::for_each_argument(symbol, [&](ir::ValueId id) {
        if (uses_.maker(id) != passes::kNoPlace) candidate.first = std::max(candidate.first, uses_.maker(id) + 1);
      });
      passes::for_each_result(symbol, [&](ir::ValueId id) {
        if (!uses_.readers(id).empty()) candidate.last = std::min(candidate.last, uses_.readers(id).front());
      });
      candidate_at_[i] = candidate;
    }
  }

  [[nodiscard]] bool is_concatenation(const ir::BoundSymbol& symbol) const {
    const auto regions = buffer_regions_of(symbol, trace_);
    return regions && !regions->fill;
  }

  [[nodiscard]] bool is_small_operation(const ir::BoundSymbol& symbol) const {
    if (!passes::is_pure(symbol)) return false;
    const FusionRole role = model_.role(symbol, trace_);
    if (role.kind != FusionRole::Kind::kWork || role.work == 0 || model_.is_claimed(symbol, trace_)) return false;
    return std::ranges::all_of(ir::flat_results(symbol), [](ir::ValueId id) { return id != ir::kNoValue; });
  }

  /// It reads and writes little, on one device.
  [[nodiscard]] bool is_small(const ir::BoundSymbol& symbol) const {
    std::int64_t bytes = 0;
    std::optional<ir::Device> device;
    bool is_one = true;
    const auto look = [&](ir::ValueId id) {
      const ir::TensorType* type = passes::operand_type(trace_, id);
      if (type == nullptr) return;
      bytes += passes::size_in_bytes(type);
      is_one = is_one && device.value_or(type->device) == type->device;
      device = type->device;
    };
    for_each_value(symbol, look);
    return is_one && device && bytes <= model_.target->largest_in_batch;
  }

  // --- where they may stand

  /// Lets candidates on both sides of symbol `i` stay there.
  void keep_apart(std::uint32_t i, Candidate& candidate) const {
    if (i < candidate.place) {
      candidate.first = std::max(candidate.first, i + 1);
    } else {
      candidate.last = std::min(candidate.last, i);
    }
  }

  [[nodiscard]] bool is_barrier(const ir::BoundSymbol& symbol) const {
    return symbol.op->effect || symbol.op->style == ir::CallStyle::kReturn || operators::communicates(*symbol.op);
  }

  /// Whether a write to the caller's memory must come before, or after it: a program that raises an error, or finds a
  /// number that is not as it was, runs again from what the inputs held.
  [[nodiscard]] bool may_stop(const ir::BoundSymbol& symbol) const {
    return symbol.op->style == ir::CallStyle::kPrimitive || passes::may_raise(trace_, symbol);
  }

  void find_barriers() {
    std::vector<std::uint32_t> barriers;
    std::vector<std::uint32_t> stops;
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (is_barrier(trace_.symbols[i])) barriers.push_back(i);
      if (may_stop(trace_.symbols[i])) stops.push_back(i);
    }
    const auto limit = [](const std::vector<std::uint32_t>& places, Candidate& candidate) {
      const auto next = std::ranges::upper_bound(places, candidate.place);
      if (next != places.end()) candidate.last = std::min(candidate.last, *next);
      if (next != places.begin()) candidate.first = std::max(candidate.first, *std::prev(next) + 1);
    };
    for (auto& candidate : candidate_at_) {
      if (!candidate) continue;
      limit(barriers, *candidate);
      if (written_by(trace_.symbols[candidate->place]).empty()) continue;
      limit(stops, *candidate);
      candidate->first = candidate->place;
    }
  }

  [[nodiscard]] static std::vector<ir::ValueId> written_by(const ir::BoundSymbol& symbol) {
    std::vector<ir::ValueId> written;
    passes::for_each_written(symbol, [&](ir::ValueId id) { written.push_back(id); });
    if (symbol.op == fused_operator()) {
      const std::vector<ir::ValueId> inputs = ir::distinct_values(symbol.arguments);
      for (const std::size_t place : written_inputs(symbol)) written.push_back(inputs[place]);
    }
    return written;
  }

  struct Touch {
    std::uint32_t place;
    bool writes;
  };

  /// Keeps candidates on their side of whatever writes to memory that they use, or uses memory that they write to. Two
  /// candidates that meet there stay where they are.
  void find_conflicts() {
    std::map<std::uint32_t, std::vector<Touch>> touches;  // by set that something writes to
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      for (const ir::ValueId id : written_by(symbol)) touches[aliases_.set_of(id)];
    }
    if (touches.empty()) return;
    std::vector<bool> stays(trace_.symbols.size(), false);
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      std::map<std::uint32_t, bool> of_symbol;
      for_each_value(trace_.symbols[i], [&](ir::ValueId id) {
        if (touches.contains(aliases_.set_of(id))) of_symbol.try_emplace(aliases_.set_of(id), false);
      });
      for (const ir::ValueId id : written_by(trace_.symbols[i])) of_symbol[aliases_.set_of(id)] = true;
      for (const auto& [set, writes] : of_symbol) touches[set].push_back({i, writes});
    }
    for (const auto& [set, all] : touches) {
      for (const Touch& one : all) {
        if (!candidate_at_[one.place]) continue;
        for (const Touch& other : all) {
          if (other.place == one.place || (!one.writes && !other.writes)) continue;
          keep_apart(other.place, *candidate_at_[one.place]);
          if (candidate_at_[other.place]) stays[one.place] = true;
        }
      }
    }
    for (std::uint32_t i = 0; i < candidate_at_.size(); ++i) {
      if (stays[i]) candidate_at_[i].reset();
    }
  }

  // --- batches

  /// Equal for symbols whose kernels are likely to have one text.
  [[nodiscard]] std::string key_of(const ir::BoundSymbol& symbol) const {
    std::string key;
    const auto add = [&](const ir::BoundSymbol& operation) {
      key += operation.op->name + "." + operation.op->overload + "(";
      for_each_value(operation, [&](ir::ValueId id) {
        if (const ir::TensorType* type = passes::operand_type(trace_, id)) add_to_key(*type, key);
      });
      key += ")";
    };
    if (symbol.op == fused_operator()) {
      std::ranges::for_each(symbol.nested, add);
    } else {
      add(symbol);
    }
    for_each_value(symbol, [&](ir::ValueId id) {
      if (const ir::TensorType* type = passes::operand_type(trace_, id))
        key += std::to_string(type->device.index) + ";";
    });
    return key;
  }

  /// Takes candidates that end first together with those that may stand there, too.
  void batch(std::vector<Candidate*>& pending) {
    if (pending.size() < 2) return;
    std::ranges::stable_sort(pending, [](const Candidate* a, const Candidate* b) {
      return std::pair(a->last, a->first) < std::pair(b->last, b->first);
    });
    while (!pending.empty()) {
      std::vector<Candidate*> members;
      for (Candidate* candidate : pending) {
        if (members.size() < kMostMembers && may_join(members, *candidate)) members.push_back(candidate);
      }
      if (members.empty()) members.push_back(pending.front());  // a batch has left no place for it
      std::erase_if(pending,
                    [&](Candidate* candidate) { return std::ranges::find(members, candidate) != members.end(); });
      int weight = 0;
      for (const Candidate* member : members) weight += member->weight;
      if (members.size() > 1 && weight >= kLeastWeight) take(members);
    }
  }

  /// The last place that all allow, but none behind the last of them; nullopt: there is none.
  [[nodiscard]] static std::optional<std::uint32_t> place_for(const std::vector<Candidate*>& members) {
    std::uint32_t first = 0;
    std::uint32_t last = passes::kNoPlace;
    std::uint32_t end = 0;
    for (const Candidate* member : members) {
      first = std::max(first, member->first);
      last = std::min(last, member->last);
      end = std::max(end, member->place);
    }
    if (first > last) return std::nullopt;
    return std::clamp(end, first, last);
  }

  [[nodiscard]] bool may_join(const std::vector<Candidate*>& members, const Candidate& candidate) const {
    std::vector<Candidate*> all = members;
    all.push_back(const_cast<Candidate*>(&candidate));
    const auto place = place_for(all);
    if (!place) return false;
    std::int64_t held = 0;
    for (const Candidate* member : all) held += held_by(*member, *place);
    if (held > model_.target->most_held) return false;
    return std::ranges::none_of(
        members, [&](const Candidate* member) { return reads(*member, candidate) || reads(candidate, *member); });
  }

  [[nodiscard]] bool reads(const Candidate& reader, const Candidate& maker) const {
    bool found = false;
    passes::for_each_argument(trace_.symbols[reader.place],
                              [&](ir::ValueId id) { found = found || uses_.maker(id) == maker.place; });
    return found;
  }

  /// Bytes that live longer where a candidate stands elsewhere.
  [[nodiscard]] std::int64_t held_by(const Candidate& candidate, std::uint32_t place) const {
    const ir::BoundSymbol& symbol = trace_.symbols[candidate.place];
    std::int64_t bytes = 0;
    if (place <= candidate.place) {
      if (place == candidate.place) return 0;
      passes::for_each_result(symbol, [&](ir::ValueId id) { bytes += passes::size_in_bytes(trace_.tensor_type(id)); });
      return bytes;
    }
    passes::for_each_argument(symbol, [&](ir::ValueId id) {
      const bool may_die = aliases_.is_own_memory(id) || (model_.inputs_die && aliases_.touches_input(id));
      if (may_die && last_use_[aliases_.set_of(id)] < place) bytes += passes::size_in_bytes(trace_.tensor_type(id));
    });
    return bytes;
  }

  void take(const std::vector<Candidate*>& members) {
    Batch made{place_for(members).value(), {}};
    for (Candidate* member : members) {
      member->is_taken = true;
      made.members.push_back(member->place);
      const ir::BoundSymbol& symbol = trace_.symbols[member->place];
      passes::for_each_argument(symbol, [&](ir::ValueId id) { end_before(uses_.maker(id), made.place); });
      passes::for_each_result(symbol, [&](ir::ValueId id) {
        for (const std::uint32_t reader : uses_.readers(id)) begin_behind(reader, made.place);
      });
    }
    std::ranges::sort(made.members);
    batches_.push_back(std::move(made));
  }

  /// Batches at one place do not know which comes first: what needs another one stands elsewhere.
  void end_before(std::uint32_t maker, std::uint32_t place) {
    if (maker == passes::kNoPlace || !candidate_at_[maker]) return;
    Candidate& candidate = *candidate_at_[maker];
    if (place == 0) {
      candidate.first = passes::kNoPlace;
    } else {
      candidate.last = std::min(candidate.last, place - 1);
    }
  }
  void begin_behind(std::uint32_t reader, std::uint32_t place) {
    if (!candidate_at_[reader]) return;
    candidate_at_[reader]->first = std::max(candidate_at_[reader]->first, place + 1);
  }

  // --- the trace

  void assemble() {
    std::ranges::stable_sort(batches_, {}, &Batch::place);
    auto next = batches_.begin();
    for (std::uint32_t i = 0; i <= trace_.symbols.size(); ++i) {
      for (; next != batches_.end() && next->place == i; ++next) result_.add(block_of(*next));
      if (i == trace_.symbols.size()) break;
      const bool is_taken = candidate_at_[i] && candidate_at_[i]->is_taken;
      if (!is_taken) result_.add(trace_.symbols[i]);
    }
  }

  [[nodiscard]] ir::BoundSymbol kernel_of(const ir::BoundSymbol& symbol) const {
    if (symbol.op == fused_operator()) return symbol;
    ir::BoundSymbol kernel = make_block(model_.executor, kKernel, symbol);
    kernel.comment = "1 operation";
    return kernel;
  }

  [[nodiscard]] ir::BoundSymbol block_of(const Batch& batch) const {
    std::vector<ir::BoundSymbol> kernels;
    ir::ArgumentList reads;
    ir::ArgumentList gives;
    for (const std::uint32_t i : batch.members) {
      kernels.push_back(kernel_of(trace_.symbols[i]));
      for (const ir::ValueId id : ir::distinct_values(kernels.back().arguments)) {
        if (std::ranges::find(reads, ir::Argument(id)) == reads.end()) reads.emplace_back(id);
      }
      for (const ir::ValueId id : ir::flat_results(kernels.back())) gives.emplace_back(id);
    }
    const std::string count = std::to_string(kernels.size());
    ir::BoundSymbol block = make_block(model_.executor, kBatch, std::move(reads), std::move(gives), std::move(kernels));
    block.comment = count + " kernels";
    return block;
  }

  const ir::Trace& trace_;
  const BatchModel& model_;
  ir::Uses uses_;
  passes::AliasAnalysis aliases_;
  std::vector<std::uint32_t> last_use_;                 ///< by alias set
  std::vector<std::optional<Candidate>> candidate_at_;  ///< by symbol
  std::vector<Batch> batches_;
  ir::Trace result_;
};

}  // namespace

std::optional<ir::Trace> batch_kernels(const ir::Trace& trace, const BatchModel& model) {
  return Batcher(trace, model).run();
}

}  // namespace thunder::fusion
