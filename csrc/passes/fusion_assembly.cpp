#include "passes/fusion_assembly.h"

#include <algorithm>
#include <utility>

#include "ir/substitution.h"
#include "passes/symbol_facts.h"
#include "passes/symbol_order.h"

namespace thunder::passes {
namespace {

/// Puts groups in their places.
class Assembler {
 public:
  Assembler(const ir::Trace& trace, const FusionModel& model, const ir::Operator* fused, const std::string& executor,
            const DescribeFusion& describe)
      : trace_(trace),
        fused_(fused),
        executor_(executor),
        describe_(describe),
        order_(trace),
        groups_(partition(trace, order_, model)),
        result_(trace.empty_copy(kFusionPartition)),
        replaced_(trace.value_count()),
        group_of_(trace.symbols.size(), kNoPlace),
        is_doubled_(trace.symbols.size(), false),
        emitted_(trace.symbols.size(), false) {
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      for (const std::size_t i : groups_[g].symbols) group_of_[i] = g;
    }
    find_what_others_read();
    find_doubled(model);
  }

  ir::Trace run() {
    // A group comes when its last symbol's turn is, or when somebody before that reads what it gives.
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      const bool waits = group_of_[i] != kNoPlace && groups_[group_of_[i]].symbols.back() != i;
      if (!waits) emit(i);
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
      for_each_argument(trace_.symbols[i], [&](ir::ValueId id) {
        const std::uint32_t maker = order_.maker(id);
        if (maker == kNoPlace || group_of_[maker] == kNoPlace || group_of_[maker] == group_of_[i]) return;
        read_outside_[ir::index_of(id)] = true;
      });
    }
  }

  /// A view that others read is made again outside: so what it is a view of is read there.
  void find_doubled(const FusionModel& model) {
    for (std::uint32_t i = static_cast<std::uint32_t>(trace_.symbols.size()); i-- > 0;) {
      const ir::BoundSymbol& symbol = trace_.symbols[i];
      const ir::ValueId result = group_of_[i] == kNoPlace ? ir::kNoValue : single_result(symbol);
      if (result == ir::kNoValue || !read_outside_[ir::index_of(result)]) continue;
      if (model.role(symbol, trace_).work != 0) continue;
      is_doubled_[i] = true;
      for_each_argument(symbol, [&](ir::ValueId id) { read_outside_[ir::index_of(id)] = true; });
    }
  }

  void emit(std::uint32_t i) {
    if (emitted_[i]) return;
    if (group_of_[i] != kNoPlace) {
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
    ir::BoundSymbol symbol;
    symbol.op = fused_;
    ir::ArgumentList reads;
    ir::ArgumentList gives;
    for (const std::size_t i : group.symbols) {
      for_each_argument(trace_.symbols[i], [&](ir::ValueId id) {
        if (!is_made_in(g, id) && order_.maker(id) != kNoPlace) emit(order_.maker(id));
      });
    }
    std::vector<std::uint32_t> doubled;
    for (const std::size_t position : group.symbols) {
      const auto i = static_cast<std::uint32_t>(position);
      ir::BoundSymbol nested = trace_.symbols[i];
      nested.nested.clear();
      for (ir::Argument& argument : nested.arguments) {
        ir::for_each_value(argument, [&](ir::ValueId& id) {
          if (is_made_in(g, id)) return;
          if (const ir::Argument* value = replaced_.find(id)) id = std::get<ir::ValueId>(value->content);
          if (std::ranges::find(reads, ir::Argument(id)) == reads.end()) reads.emplace_back(id);
        });
      }
      if (is_doubled_[i]) {
        doubled.push_back(i);
      } else {
        for_each_result(nested, [&](ir::ValueId id) {
          if (read_outside_[ir::index_of(id)]) gives.emplace_back(id);
        });
      }
      symbol.nested.push_back(std::move(nested));
    }
    symbol.arguments = {ir::Argument(executor_), ir::Argument(std::move(reads))};
    symbol.results = {ir::Argument(std::move(gives))};
    symbol.location = trace_.symbols[group.symbols.front()].location;
    symbol.comment = describe_(symbol, result_);
    result_.add(std::move(symbol));
    for (const std::uint32_t i : doubled) add_outside(i);
  }

  [[nodiscard]] bool is_made_in(std::uint32_t g, ir::ValueId id) const {
    return order_.maker(id) != kNoPlace && group_of_[order_.maker(id)] == g;
  }

  void add_outside(std::uint32_t i) {
    ir::BoundSymbol copy = trace_.symbols[i];
    copy.nested.clear();
    replaced_.apply(copy.arguments);
    const ir::ValueId inside = single_result(copy);
    const ir::ValueId outside = result_.add_value(trace_.value(inside).type, trace_.value(inside).name);
    copy.results = {ir::Argument(outside)};
    replaced_.set(inside, outside);
    result_.add(std::move(copy));
  }

  const ir::Trace& trace_;
  const ir::Operator* fused_;
  const std::string& executor_;
  const DescribeFusion& describe_;
  SymbolOrder order_;
  std::vector<FusionGroup> groups_;
  ir::Trace result_;
  ir::Substitution replaced_;  ///< views, as they are made outside
  std::vector<std::uint32_t> group_of_;
  std::vector<bool> is_doubled_;  ///< symbols of groups that are made again outside
  std::vector<bool> emitted_;
  std::vector<bool> read_outside_;  ///< values of groups that something outside of the group reads
};

}  // namespace

ir::Trace fuse(const ir::Trace& trace, const FusionModel& model, const ir::Operator* fused, const std::string& executor,
               const DescribeFusion& describe) {
  return Assembler(trace, model, fused, executor, describe).run();
}

}  // namespace thunder::passes
