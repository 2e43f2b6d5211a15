#include "fusion/assembly.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "fusion/region.h"
#include "fusion/repetition.h"
#include "ir/substitution.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"
#include "passes/symbol_order.h"

namespace thunder::fusion {
namespace {

/// Puts groups in their places.
class Assembler {
 public:
  Assembler(const ir::Trace& trace, const FusionModel& model, const std::string& executor,
            const DescribeFusion& describe)
      : trace_(trace),
        executor_(executor),
        describe_(describe),
        order_(trace),
        aliases_(trace),
        groups_(partition(trace, order_, model)),
        result_(trace.empty_copy(kFusionPartition)),
        replaced_(trace.value_count()),
        group_of_(trace.symbols.size(), passes::kNoPlace),
        is_doubled_(trace.symbols.size(), false),
        emitted_(trace.symbols.size(), false) {
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      for (const std::size_t i : groups_[g].symbols) group_of_[i] = g;
    }
    find_what_others_read();
    find_doubled(model);
    is_repeated_ = find_repeated({trace, model, order_, aliases_, group_of_, is_doubled_, groups_, read_outside_});
  }

  ir::Trace run() {
    // A group comes when its last symbol's turn is, or when somebody before that reads what it gives.
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      const bool is_fused = group_of_[i] != passes::kNoPlace;
      if (is_fused && (groups_[group_of_[i]].symbols.empty() || groups_[group_of_[i]].symbols.back() != i)) continue;
      emit(i);
    }
    replaced_.apply(result_.outputs);
    return std::move(result_);
  }

 private:
  void find_what_others_read() {
    read_outside_.assign(trace_.value_count(), false);
    for (const ir::Argument& output : trace_.outputs) {
      ir::for_each_value(output, [&](ir::ValueId id) { read_outside_[ir::index_of(id)] = true; });
    }
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      passes::for_each_argument(trace_.symbols[i], [&](ir::ValueId id) {
        const std::uint32_t maker = order_.maker(id);
        if (maker == passes::kNoPlace || group_of_[maker] == passes::kNoPlace || group_of_[maker] == group_of_[i])
          return;
        read_outside_[ir::index_of(id)] = true;
      });
    }
  }

  /// A view that others read is made again outside: so what it is a view of is read there.
  void find_doubled(const FusionModel& model) {
    for (std::uint32_t i = static_cast<std::uint32_t>(trace_.symbols.size()); i-- > 0;) {
      const ir::BoundSymbol& symbol = trace_.symbols[i];
      const ir::ValueId result = group_of_[i] == passes::kNoPlace ? ir::kNoValue : passes::single_result(symbol);
      if (result == ir::kNoValue || !read_outside_[ir::index_of(result)]) continue;
      if (model.role(symbol, trace_).work != 0) continue;
      is_doubled_[i] = true;
      passes::for_each_argument(symbol, [&](ir::ValueId id) { read_outside_[ir::index_of(id)] = true; });
    }
  }

  void emit(std::uint32_t i) {
    if (emitted_[i]) return;
    if (group_of_[i] != passes::kNoPlace) {
      emit_group(group_of_[i]);
      return;
    }
    emitted_[i] = true;
    order_.for_each_before(i, [&](std::uint32_t before) { emit(before); });
    ir::BoundSymbol symbol = trace_.symbols[i];
    replaced_.apply(symbol.arguments);
    result_.add(std::move(symbol));
  }

  void emit_group(std::uint32_t g) {
    const FusionGroup& group = groups_[g];
    for (const std::size_t i : group.symbols) emitted_[i] = true;
    std::set<std::uint32_t> repeated;
    for (const std::size_t i : group.symbols) emit_what_is_read(g, static_cast<std::uint32_t>(i), repeated);
    Parts parts;
    parts.group = g;
    std::vector<std::uint32_t> doubled;
    for (const std::size_t position : group.symbols) {
      const auto i = static_cast<std::uint32_t>(position);
      ir::BoundSymbol nested = trace_.symbols[i];
      take_arguments(nested, parts);
      if (is_doubled_[i]) {
        doubled.push_back(i);
      } else {
        passes::for_each_result(nested, [&](ir::ValueId id) {
          if (read_outside_[ir::index_of(id)]) parts.gives.emplace_back(id);
        });
      }
      parts.nested.push_back(std::move(nested));
    }
    if (!parts.gives.empty()) add_fused(std::move(parts));
    for (const std::uint32_t i : doubled) add_outside(i);
  }

  /// The parts of a fused symbol.
  struct Parts {
    std::uint32_t group = passes::kNoPlace;
    ir::ArgumentList reads;
    ir::ArgumentList gives;
    std::vector<ir::BoundSymbol> nested;
    std::map<ir::ValueId, ir::ValueId> repeated;  ///< made in another group -> here
  };

  /// `repeated`: the symbols that the group repeats whose reads have been emitted.
  void emit_what_is_read(std::uint32_t g, std::uint32_t i, std::set<std::uint32_t>& repeated) {
    passes::for_each_argument(trace_.symbols[i], [&](ir::ValueId id) {
      const std::uint32_t maker = order_.maker(id);
      if (maker == passes::kNoPlace || is_made_in(g, id)) return;
      if (!is_repeated_[maker]) {
        emit(maker);
      } else if (repeated.insert(maker).second) {
        emit_what_is_read(g, maker, repeated);
      }
    });
  }

  void take_arguments(ir::BoundSymbol& symbol, Parts& parts) {
    symbol.nested.clear();
    for (ir::Argument& argument : symbol.arguments) {
      ir::for_each_value(argument, [&](ir::ValueId& id) {
        if (is_made_in(parts.group, id)) return;
        const std::uint32_t maker = order_.maker(id);
        if (maker != passes::kNoPlace && is_repeated_[maker]) {
          id = repeat(maker, parts);
          return;
        }
        if (const ir::Argument* value = replaced_.find(id)) id = std::get<ir::ValueId>(value->content);
        if (std::ranges::find(parts.reads, ir::Argument(id)) == parts.reads.end()) parts.reads.emplace_back(id);
      });
    }
  }

  ir::ValueId repeat(std::uint32_t maker, Parts& parts) {
    ir::BoundSymbol copy = trace_.symbols[maker];
    const ir::ValueId original = passes::single_result(copy);
    if (const auto known = parts.repeated.find(original); known != parts.repeated.end()) return known->second;
    take_arguments(copy, parts);
    const ir::ValueId here = result_.add_value(trace_.value(original).type, trace_.value(original).name);
    parts.repeated.emplace(original, here);
    copy.results = {ir::Argument(here)};
    parts.nested.push_back(std::move(copy));
    return here;
  }

  void add_fused(Parts parts) {
    ir::BoundSymbol symbol =
        make_block(executor_, kKernel, std::move(parts.reads), std::move(parts.gives), std::move(parts.nested));
    symbol.location = trace_.symbols[groups_[parts.group].symbols.front()].location;
    symbol.comment = describe_(symbol, result_);
    result_.add(std::move(symbol));
  }

  [[nodiscard]] bool is_made_in(std::uint32_t g, ir::ValueId id) const {
    return order_.maker(id) != passes::kNoPlace && group_of_[order_.maker(id)] == g;
  }

  void add_outside(std::uint32_t i) {
    ir::BoundSymbol copy = trace_.symbols[i];
    copy.nested.clear();
    replaced_.apply(copy.arguments);
    const ir::ValueId inside = passes::single_result(copy);
    const ir::ValueId outside = result_.add_value(trace_.value(inside).type, trace_.value(inside).name);
    copy.results = {ir::Argument(outside)};
    replaced_.set(inside, outside);
    result_.add(std::move(copy));
  }

  const ir::Trace& trace_;
  const std::string& executor_;
  const DescribeFusion& describe_;
  passes::SymbolOrder order_;
  passes::AliasAnalysis aliases_;
  std::vector<FusionGroup> groups_;
  ir::Trace result_;
  ir::Substitution replaced_;  ///< views, as they are made outside
  std::vector<std::uint32_t> group_of_;
  std::vector<bool> is_doubled_;   ///< symbols of groups that are made again outside
  std::vector<bool> is_repeated_;  ///< symbols of groups that are made again in each group that reads them
  std::vector<bool> emitted_;
  std::vector<bool> read_outside_;  ///< values of groups that something outside of the group reads
};

}  // namespace

ir::Trace fuse(const ir::Trace& trace, const FusionModel& model, const std::string& executor,
               const DescribeFusion& describe) {
  return Assembler(trace, model, executor, describe).run();
}

}  // namespace thunder::fusion
