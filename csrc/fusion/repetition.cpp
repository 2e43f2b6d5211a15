#include "fusion/repetition.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "operators/facts.h"
#include "passes/max_flow.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

using passes::MaxFlow;
using Groups = std::set<std::uint32_t>;

/// A write costs a little more than a read: of two cuts alike, the one that writes less is taken.
constexpr std::int64_t kReadCost = 4;
constexpr std::int64_t kWriteCost = 5;

class Repetition {
 public:
  explicit Repetition(const GroupedTrace& grouped)
      : grouped_(grouped),
        trace_(grouped.trace),
        roles_(trace_.symbols.size()),
        is_repeated_(trace_.symbols.size(), false),
        must_exist_(trace_.value_count(), false),
        readers_(trace_.value_count()),
        communications_before_(trace_.symbols.size(), 0),
        is_decided_(grouped.groups.size(), false) {
    for (std::size_t i = 1; i < trace_.symbols.size(); ++i) {
      const bool communicates = operators::communicates(*trace_.symbols[i - 1].op);
      communications_before_[i] = communications_before_[i - 1] + (communicates ? 1 : 0);
    }
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (is_grouped(i)) roles_[i] = grouped.model.role(trace_.symbols[i], trace_);
    }
    find_readers();
  }

  std::vector<bool> run() {
    for (std::uint32_t g = 0; g < grouped_.groups.size(); ++g) decide_in_order(g);
    for (FusionGroup& group : grouped_.groups) drop_what_only_others_need(group);
    return std::move(is_repeated_);
  }

 private:
  [[nodiscard]] bool is_grouped(std::uint32_t i) const { return grouped_.group_of[i] != passes::kNoPlace; }
  [[nodiscard]] bool is_made_in(std::uint32_t g, ir::ValueId id) const {
    const std::uint32_t maker = grouped_.order.maker(id);
    return maker != passes::kNoPlace && grouped_.group_of[maker] == g;
  }
  [[nodiscard]] bool is_read_outside(ir::ValueId id) const { return grouped_.read_outside[ir::index_of(id)]; }
  [[nodiscard]] std::int64_t bytes_of(ir::ValueId id) const { return ir::size_in_bytes(trace_.tensor_type(id)); }

  void find_readers() {
    for (const ir::Argument& output : trace_.outputs) {
      ir::for_each_value(output, [&](ir::ValueId id) { must_exist_[ir::index_of(id)] = true; });
    }
    const std::vector<bool> tests_equality = groups_that_test_equality();
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      const std::uint32_t g = grouped_.group_of[i];
      for (std::uint32_t a = 0; a < trace_.symbols[i].arguments.size(); ++a) {
        ir::for_each_value(trace_.symbols[i].arguments[a], [&](ir::ValueId id) {
          const bool goes_over = is_grouped(i) && goes_over_elements(i, a, id);
          const bool stays = !goes_over || grouped_.is_doubled[i] || is_made_across_communication(id, i);
          const bool is_tested = is_grouped(i) && tests_equality[g] && !is_made_in(g, id);
          if (stays || is_tested) must_exist_[ir::index_of(id)] = true;
          if (is_grouped(i)) readers_[ir::index_of(id)].insert(g);
        });
      }
    }
  }

  /// A value that is compared with a maximum, say, might differ in the last bit where another kernel computes it again.
  [[nodiscard]] std::vector<bool> groups_that_test_equality() const {
    std::vector<bool> found(grouped_.groups.size(), false);
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (is_grouped(i) && operators::has_fact(*trace_.symbols[i].op, operators::Fact::kTestsEquality))
        found[grouped_.group_of[i]] = true;
    }
    return found;
  }

  /// Whether a reader takes an argument element by element, in the order in which the fusion goes over them.
  [[nodiscard]] bool goes_over_elements(std::uint32_t reader, std::uint32_t argument, ir::ValueId id) const {
    const FusionRole& role = roles_[reader];
    const ir::TensorType* type = trace_.tensor_type(id);
    const IterationSpace& space = grouped_.groups[grouped_.group_of[reader]].space;
    if (type == nullptr || passes::element_count(*type) != space.count()) return false;
    if (((role.by_rows | role.by_channels | role.gathered) >> argument & 1U) != 0) return false;
    return role.kind == FusionRole::Kind::kView || have_same_order(*type, *trace_.tensor_type(role.over));
  }

  /// Nothing is repeated across communication, whose time it would no longer hide.
  [[nodiscard]] bool is_made_across_communication(ir::ValueId id, std::uint32_t reader) const {
    const std::uint32_t maker = grouped_.order.maker(id);
    return maker != passes::kNoPlace && communications_before_[maker] != communications_before_[reader];
  }

  /// Groups come after those that they read from.
  void decide_in_order(std::uint32_t g) {
    if (is_decided_[g]) return;
    is_decided_[g] = true;
    for (const std::size_t i : grouped_.groups[g].symbols) {
      passes::for_each_argument(trace_.symbols[i], [&](ir::ValueId id) {
        const std::uint32_t maker = grouped_.order.maker(id);
        if (maker != passes::kNoPlace && is_grouped(maker)) decide_in_order(grouped_.group_of[maker]);
      });
    }
    decide(g);
  }

  /// The values that others' reads of a group come from, each with the groups that would read it in place of those.
  struct Cone {
    std::map<ir::ValueId, Groups> readers;
    std::set<std::uint32_t> repeatable;  ///< symbols
  };

  void decide(std::uint32_t g) {
    const Cone cone = cone_of(g);
    if (cone.repeatable.empty()) return;
    std::map<ir::ValueId, std::uint32_t> numbers;
    for (const auto& [id, readers] : cone.readers) numbers.emplace(id, static_cast<std::uint32_t>(numbers.size()));
    const auto in = [&](ir::ValueId id) { return 2 * numbers.at(id); };
    const auto out = [&](ir::ValueId id) { return 2 * numbers.at(id) + 1; };
    const auto source = static_cast<std::uint32_t>(2 * numbers.size());
    const std::uint32_t sink = source + 1;
    MaxFlow flow(sink + 1);
    for (const auto& [id, readers] : cone.readers) {
      flow.add_edge(in(id), out(id), cost_of(g, id, readers));
      const std::uint32_t maker = grouped_.order.maker(id);
      if (maker != passes::kNoPlace && cone.repeatable.contains(maker)) {
        passes::for_each_argument(trace_.symbols[maker], [&, to = in(id)](ir::ValueId argument) {
          flow.add_edge(out(argument), to, MaxFlow::kInfinite);
        });
      } else {
        flow.add_edge(source, in(id), MaxFlow::kInfinite);
      }
      if (is_demanded(g, id)) flow.add_edge(out(id), sink, MaxFlow::kInfinite);
    }
    flow.run(source, sink);
    const std::vector<bool> is_behind = flow.sink_side(sink);
    const auto is_cut = [&](ir::ValueId id) { return !is_behind[in(id)] && is_behind[out(id)]; };
    if (!readers_have_room(cone, is_cut)) return;
    for (const auto& [id, readers] : cone.readers) {
      if (!is_made_in(g, id)) continue;
      const std::uint32_t maker = grouped_.order.maker(id);
      if (is_cut(id)) grouped_.read_outside[ir::index_of(id)] = true;
      if (!cone.repeatable.contains(maker) || !is_behind[in(id)]) continue;
      is_repeated_[maker] = true;
      grouped_.read_outside[ir::index_of(id)] = false;
    }
  }

  /// Whether other groups, and nobody else, read a value of a group.
  [[nodiscard]] bool is_demanded(std::uint32_t g, ir::ValueId id) const {
    return is_made_in(g, id) && !grouped_.is_doubled[grouped_.order.maker(id)] && is_read_outside(id) &&
           !must_exist_[ir::index_of(id)];
  }

  [[nodiscard]] Cone cone_of(std::uint32_t g) const {
    Cone cone;
    std::set<std::uint32_t, std::greater<>> pending;  // symbols, the last one first
    for (const std::size_t position : grouped_.groups[g].symbols) {
      passes::for_each_result(trace_.symbols[position], [&](ir::ValueId id) {
        if (!is_demanded(g, id)) return;
        cone.readers[id] = readers_[ir::index_of(id)];
        cone.readers[id].erase(g);
        pending.insert(static_cast<std::uint32_t>(position));
      });
    }
    while (!pending.empty()) {
      const std::uint32_t i = *pending.begin();
      pending.erase(pending.begin());
      const ir::ValueId result = passes::single_result(trace_.symbols[i]);
      if (result == ir::kNoValue || !(is_repeated_[i] || may_repeat(g, i, cone.readers.at(result)))) continue;
      cone.repeatable.insert(i);
      const Groups readers = cone.readers.at(result);
      passes::for_each_argument(trace_.symbols[i], [&](ir::ValueId id) {
        cone.readers[id].insert(readers.begin(), readers.end());
        const std::uint32_t maker = grouped_.order.maker(id);
        if (maker == passes::kNoPlace) return;
        if (grouped_.group_of[maker] == g || is_repeated_[maker]) pending.insert(maker);
      });
    }
    return cone;
  }

  [[nodiscard]] bool may_repeat(std::uint32_t g, std::uint32_t i, const Groups& readers) const {
    const FusionRole& role = roles_[i];
    const ir::ValueId result = passes::single_result(trace_.symbols[i]);
    if (grouped_.group_of[i] != g || grouped_.is_doubled[i]) return false;
    if (is_read_outside(result) && must_exist_[ir::index_of(result)]) return false;
    if (role.kind == FusionRole::Kind::kNone || role.rows != 0 || role.work > 1) return false;
    if (role.results.front() != FusionRole::Result::kElements) return false;
    const ir::TensorType& over = *trace_.tensor_type(role.over);
    if (passes::element_count(over) != grouped_.groups[g].space.count()) return false;
    bool stays = true;
    passes::for_each_argument(trace_.symbols[i],
                              [&](ir::ValueId id) { stays = stays && !grouped_.aliases.is_written(id); });
    return stays && std::ranges::all_of(readers, [&](std::uint32_t reader) {
             return join(grouped_.groups[reader].space, space_of(over)).has_value();
           });
  }

  /// The cost of having other groups read a value of the cone.
  [[nodiscard]] std::int64_t cost_of(std::uint32_t g, ir::ValueId id, const Groups& readers) const {
    const std::uint32_t maker = grouped_.order.maker(id);
    const bool is_view = is_made_in(g, id) && roles_[maker].work == 0;
    if (is_view || (maker != passes::kNoPlace && is_repeated_[maker])) return MaxFlow::kInfinite;
    const bool is_new = is_made_in(g, id) && !(is_read_outside(id) && must_exist_[ir::index_of(id)]);
    const Groups& known = readers_[ir::index_of(id)];
    std::int64_t cost = is_new ? kWriteCost : 0;
    for (const std::uint32_t reader : readers) cost += !is_new && known.contains(reader) ? 0 : kReadCost;
    return cost * bytes_of(id);
  }

  /// Whether kernels that read the values of a cut instead of what they read have no more tensors than the model
  /// allows.
  template <typename IsCut>
  [[nodiscard]] bool readers_have_room(const Cone& cone, const IsCut& is_cut) const {
    std::map<std::uint32_t, std::size_t> added;
    for (const auto& [id, readers] : cone.readers) {
      for (const std::uint32_t reader : readers) added[reader] += is_cut(id) ? 1 : 0;
    }
    return std::ranges::all_of(
        added, [&](const auto& pair) { return pair.second + tensors_of(pair.first) <= grouped_.model.most_tensors; });
  }

  [[nodiscard]] std::size_t tensors_of(std::uint32_t g) const {
    std::set<ir::ValueId> tensors;
    for (const std::size_t i : grouped_.groups[g].symbols) {
      passes::for_each_argument(trace_.symbols[i], [&](ir::ValueId id) {
        if (!is_made_in(g, id)) tensors.insert(id);
      });
      passes::for_each_result(trace_.symbols[i], [&](ir::ValueId id) {
        if (is_read_outside(id)) tensors.insert(id);
      });
    }
    return tensors.size();
  }

  void drop_what_only_others_need(FusionGroup& group) const {
    std::set<ir::ValueId> needed;
    std::vector<std::size_t> kept;
    for (auto position = group.symbols.rbegin(); position != group.symbols.rend(); ++position) {
      const ir::BoundSymbol& symbol = trace_.symbols[*position];
      bool is_needed = !is_repeated_[*position];
      passes::for_each_result(
          symbol, [&](ir::ValueId id) { is_needed = is_needed || needed.contains(id) || is_read_outside(id); });
      if (!is_needed) continue;
      kept.push_back(*position);
      passes::for_each_argument(symbol, [&](ir::ValueId id) { needed.insert(id); });
    }
    group.symbols.assign(kept.rbegin(), kept.rend());
  }

  const GroupedTrace& grouped_;
  const ir::Trace& trace_;
  std::vector<FusionRole> roles_;                     ///< by symbol
  std::vector<bool> is_repeated_;                     ///< by symbol
  std::vector<bool> must_exist_;                      ///< by value: what else reads it than groups, element by element
  std::vector<Groups> readers_;                       ///< by value: the groups that read it
  std::vector<std::uint32_t> communications_before_;  ///< by symbol
  std::vector<bool> is_decided_;                      ///< by group
};

}  // namespace

std::vector<bool> find_repeated(const GroupedTrace& grouped) { return Repetition(grouped).run(); }

}  // namespace thunder::fusion
