#include "fusion/partition.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

class Partitioner {
 public:
  Partitioner(const ir::Trace& trace, const passes::SymbolOrder& order, const FusionModel& model)
      : trace_(trace),
        order_(order),
        model_(model),
        aliases_(trace),
        result_kinds_(trace.value_count()),
        roles_(trace.symbols.size()),
        segments_(trace.symbols.size(), 0),
        last_writers_(trace.value_count(), passes::kNoPlace),
        group_of_(trace.symbols.size()),
        groups_(trace.symbols.size()),
        visited_(trace.symbols.size(), 0),
        earliest_start_(trace.symbols.size()) {
    std::iota(group_of_.begin(), group_of_.end(), 0U);
    std::iota(earliest_start_.begin(), earliest_start_.end(), 0U);
    find_roles();
  }

  std::vector<FusionGroup> run() {
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (roles_[i].kind == FusionRole::Kind::kNone) continue;
      passes::for_each_argument(trace_.symbols[i], [&](ir::ValueId id) {
        const std::uint32_t maker = order_.maker(id);
        if (maker != passes::kNoPlace) try_merge(maker, i);
      });
    }
    for (std::uint32_t id = 0; id < trace_.value_count(); ++id) merge_readers(ir::ValueId{id});
    return take_groups();
  }

 private:
  struct Group {
    std::vector<std::uint32_t> symbols;
    IterationSpace space;
  };

  void find_roles() {
    std::uint32_t segment = 0;
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      passes::for_each_written(trace_.symbols[i], [&](ir::ValueId id) { last_writers_[aliases_.set_of(id)] = i; });
    }
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      const ir::BoundSymbol& symbol = trace_.symbols[i];
      bool writes_outside = false;
      passes::for_each_written(symbol,
                               [&](ir::ValueId id) { writes_outside = writes_outside || aliases_.touches_input(id); });
      if (writes_outside || operators::communicates(*symbol.op)) ++segment;
      segments_[i] = segment;
      if (!may_fuse(symbol)) continue;
      FusionRole role = model_.role(symbol, trace_);
      if (role.kind == FusionRole::Kind::kNone || (permutes(symbol, role) && !is_of_work(symbol))) continue;
      const ir::TensorType& over = *trace_.tensor_type(role.over);
      IterationSpace space = space_of(over, role.rows, role.before, role.blocks, role.interleaved);
      if (space.count().hint == 0 || space.columns().hint > model_.largest_row) continue;
      std::size_t k = 0;
      passes::for_each_result(symbol, [&](ir::ValueId id) { result_kinds_[ir::index_of(id)] = role.results.at(k++); });
      groups_[i] = {{i}, std::move(space)};
      roles_[i] = std::move(role);
    }
  }

  /// A view whose elements have another order than those of its argument.
  [[nodiscard]] bool permutes(const ir::BoundSymbol& symbol, const FusionRole& role) const {
    if (role.kind != FusionRole::Kind::kView) return false;
    return !ir::is_contiguous(*trace_.tensor_type(role.over)) ||
           !ir::is_contiguous(*trace_.tensor_type(passes::value_argument(symbol, 0)));
  }

  /// Whether a view shows, perhaps through others, what a symbol that works gives. Any other one only leads into
  /// groups, which would be held apart by what else reads it.
  [[nodiscard]] bool is_of_work(const ir::BoundSymbol& view) const {
    std::uint32_t maker = order_.maker(passes::value_argument(view, 0));
    while (maker != passes::kNoPlace && roles_[maker].kind == FusionRole::Kind::kView)
      maker = order_.maker(passes::value_argument(trace_.symbols[maker], 0));
    return maker != passes::kNoPlace && roles_[maker].kind == FusionRole::Kind::kWork;
  }

  [[nodiscard]] bool may_fuse(const ir::BoundSymbol& symbol) const {
    if (!passes::is_pure(symbol)) return false;
    bool stays = true;
    passes::for_each_argument(
        symbol, [&](ir::ValueId id) { stays = stays && passes::operand_type(trace_, id) && is_final(id); });
    passes::for_each_result(
        symbol, [&](ir::ValueId id) { stays = stays && trace_.tensor_type(id) && !aliases_.is_written(id); });
    return stays;
  }

  /// Nothing writes to the memory once the value is there: the value is the result of the last write to memory of the
  /// trace's own, or nothing ever writes. Writes to the caller's memory are left to `segments_`.
  [[nodiscard]] bool is_final(ir::ValueId id) const {
    if (!aliases_.is_written(id) || aliases_.touches_input(id)) return true;
    return aliases_.is_own_memory(id) && order_.maker(id) == last_writers_[aliases_.set_of(id)];
  }

  [[nodiscard]] static ir::Dim size_at(const ir::TensorType& type, std::size_t dim, std::size_t rank) {
    const std::size_t missing = rank - type.sizes.size();
    return dim < missing ? ir::Dim(1) : type.sizes[dim - missing];
  }

  /// Whether an argument has an element for each that the reader goes over, in their order, or one for each row.
  [[nodiscard]] bool lines_up(const ir::TensorType& value, std::uint32_t reader, std::uint32_t argument,
                              const IterationSpace& space) const {
    const FusionRole& role = roles_[reader];
    const ir::TensorType& over = *trace_.tensor_type(role.over);
    if (role.kind == FusionRole::Kind::kView) return true;
    const bool has_rows = product_of(value.sizes) == space.rows;
    if ((role.by_rows >> argument & 1U) != 0) return has_rows;
    if (((role.by_channels | role.gathered) >> argument & 1U) != 0) return false;
    if (value.sizes.size() > over.sizes.size()) return false;
    const std::vector<std::size_t> order = memory_order(over);
    std::vector<std::size_t> own;
    for (const std::size_t dim : memory_order(value)) {
      own.push_back(dim + over.sizes.size() - value.sizes.size());
      if (size_at(value, own.back(), over.sizes.size()) != over.sizes[own.back()]) return false;
    }
    if (own == order) return true;
    if (space.interleaved != ir::Dim(1)) {
      std::vector<std::size_t> of_rows = order;
      const std::vector<std::size_t> columns = column_dims(over, space.rows, space.interleaved);
      std::erase_if(of_rows, [&](std::size_t dim) { return std::ranges::find(columns, dim) != columns.end(); });
      return has_rows && own == of_rows;
    }
    std::size_t first = 0;  // the rows' first dimension
    ir::Dim before = 1;
    for (; first < order.size() && before != space.before; ++first) before *= over.sizes[order[first]];
    const auto rest = std::span(order).subspan(first);
    return has_rows && before == space.before && own.size() <= rest.size() &&
           std::ranges::equal(own, rest.first(own.size()));
  }

  /// Whether what `maker` gives can be handed to `reader` inside a fusion over `space`.
  [[nodiscard]] bool may_hand_over(std::uint32_t maker, std::uint32_t reader, const IterationSpace& space) const {
    bool possible = true;
    const ir::BoundSymbol& symbol = trace_.symbols[reader];
    for (std::uint32_t a = 0; a < symbol.arguments.size(); ++a) {
      ir::for_each_value(symbol.arguments[a], [&](ir::ValueId id) {
        if (order_.maker(id) != maker) return;
        if (result_kinds_[ir::index_of(id)] == FusionRole::Result::kEnd) {
          possible = false;
          return;
        }
        const ir::TensorType& type = *trace_.tensor_type(id);
        possible = possible && lines_up(type, reader, a, space);
      });
    }
    return possible;
  }

  void try_merge(std::uint32_t left, std::uint32_t right) {
    const std::uint32_t a = group_of_[left];
    const std::uint32_t b = group_of_[right];
    if (a == b || segments_[left] != segments_[right]) return;
    if (roles_[left].kind == FusionRole::Kind::kNone || roles_[right].kind == FusionRole::Kind::kNone) return;
    if (groups_[a].symbols.size() + groups_[b].symbols.size() > model_.most_symbols) return;
    const auto space = join(groups_[a].space, groups_[b].space);
    if (!space || space->columns().hint > model_.largest_row) return;
    if (!may_exchange(a, b, *space) || !may_exchange(b, a, *space)) return;
    if (tensor_count(a, b) > model_.most_tensors) return;
    if (reaches(a, b) || reaches(b, a)) return;
    std::vector<std::uint32_t> symbols;
    std::ranges::merge(groups_[a].symbols, groups_[b].symbols, std::back_inserter(symbols));
    for (const std::uint32_t i : groups_[b].symbols) group_of_[i] = a;
    for (std::uint32_t i = symbols.front(); i <= symbols.back(); ++i) {
      earliest_start_[i] = std::min(earliest_start_[i], symbols.front());
    }
    groups_[a] = {std::move(symbols), *space};
    groups_[b] = {};
  }

  [[nodiscard]] bool may_exchange(std::uint32_t from, std::uint32_t to, const IterationSpace& space) const {
    for (const std::uint32_t maker : groups_[from].symbols) {
      bool possible = true;
      passes::for_each_result(trace_.symbols[maker], [&](ir::ValueId id) {
        for (const std::uint32_t reader : order_.uses().readers(id)) {
          if (group_of_[reader] == to) possible = possible && may_hand_over(maker, reader, space);
        }
      });
      if (!possible) return false;
    }
    return true;
  }

  [[nodiscard]] std::size_t tensor_count(std::uint32_t a, std::uint32_t b) const {
    std::vector<std::uint32_t> seen;
    std::size_t count = 0;
    const auto is_inside = [&](std::uint32_t i) {
      return i != passes::kNoPlace && (group_of_[i] == a || group_of_[i] == b);
    };
    for (const std::uint32_t g : {a, b}) {
      for (const std::uint32_t i : groups_[g].symbols) {
        passes::for_each_argument(trace_.symbols[i], [&](ir::ValueId id) {
          if (is_inside(order_.maker(id))) return;
          if (std::ranges::find(seen, ir::index_of(id)) == seen.end()) seen.push_back(ir::index_of(id));
        });
        passes::for_each_result(trace_.symbols[i], [&](ir::ValueId id) {
          const bool stays_inside = std::ranges::all_of(order_.uses().readers(id), is_inside);
          count += order_.uses().is_output(id) || !stays_inside ? 1 : 0;
        });
      }
    }
    return count + seen.size();
  }

  /// Whether something outside of both lies on a way from group `from` to group `to`.
  bool reaches(std::uint32_t from, std::uint32_t to) {
    ++visit_;
    earliest_ = earliest_start_[groups_[from].symbols.front()];
    for (const std::uint32_t i : groups_[to].symbols) {
      if (reaches_above(i, from, to)) return true;
    }
    return false;
  }

  /// Whether a symbol outside that `i` depends on depends on group `from`.
  bool reaches_above(std::uint32_t i, std::uint32_t from, std::uint32_t to) {
    bool found = false;
    order_.for_each_before(i, [&](std::uint32_t before) {
      const std::uint32_t group = group_of_[before];
      if (!found && group != from && group != to) found = depends_on(before, from);
    });
    return found;
  }

  bool depends_on(std::uint32_t start, std::uint32_t target) {
    std::vector<std::uint32_t> pending{start};
    while (!pending.empty()) {
      const std::uint32_t i = pending.back();
      pending.pop_back();
      const std::uint32_t group = group_of_[i];
      if (group == target) return true;
      if (visited_[group] == visit_) continue;
      visited_[group] = visit_;
      const auto& members = groups_[group].symbols;
      const std::uint32_t last = members.empty() ? i : members.back();
      if (last < earliest_) continue;
      const auto push_needs = [&](std::uint32_t member) {
        order_.for_each_before(member, [&](std::uint32_t before) { pending.push_back(before); });
      };
      if (members.empty()) {
        push_needs(i);
      } else {
        std::ranges::for_each(members, push_needs);
      }
    }
    return false;
  }

  /// Groups that read all of a value, not far from one another, read it once.
  void merge_readers(ir::ValueId id) {
    constexpr std::size_t kNear = 4;
    constexpr std::uint32_t kNearby = 200;
    const ir::TensorType* type = trace_.tensor_type(id);
    if (type == nullptr) return;
    const ir::Dim count = product_of(type->sizes);
    std::vector<std::uint32_t> readers;
    for (const std::uint32_t i : order_.uses().readers(id)) {
      const bool reads_all = roles_[i].kind != FusionRole::Kind::kNone && groups_[group_of_[i]].space.count() == count;
      if (reads_all) readers.push_back(i);
    }
    for (std::size_t k = 1; k < readers.size(); ++k) {
      for (std::size_t other = k < kNear ? 0 : k - kNear; other < k; ++other) {
        if (readers[k] - readers[other] <= kNearby) try_merge(readers[other], readers[k]);
      }
    }
  }

  std::vector<FusionGroup> take_groups() {
    std::vector<FusionGroup> taken;
    for (Group& group : groups_) {
      trim_views(group);
      double work = 0;
      std::size_t workers = 0;
      for (const std::uint32_t i : group.symbols) {
        work += roles_[i].work;
        workers += roles_[i].work > 0 ? 1 : 0;
      }
      if (group.symbols.empty() || work < model_.least_work) continue;
      if (workers == 1 && group.space.count().hint < model_.least_alone) continue;
      taken.push_back({{group.symbols.begin(), group.symbols.end()}, std::move(group.space)});
    }
    return taken;
  }

  /// Views that only lead into a group, or out of it, stay outside.
  void trim_views(Group& group) {
    const auto in_group = [&](std::uint32_t i) {
      return i != passes::kNoPlace && std::ranges::binary_search(group.symbols, i);
    };
    for (bool changed = true; changed;) {
      const auto is_edge = [&](std::uint32_t i) {
        if (roles_[i].work != 0) return false;
        bool reads_inside = false;
        passes::for_each_argument(trace_.symbols[i],
                                  [&](ir::ValueId id) { reads_inside |= in_group(order_.maker(id)); });
        const auto readers = order_.uses().readers(passes::single_result(trace_.symbols[i]));
        const bool read_inside = std::ranges::any_of(readers, in_group);
        const bool is_linear = roles_[i].kind == FusionRole::Kind::kView;
        return !read_inside || (is_linear && !reads_inside);
      };
      const auto edge = std::ranges::find_if(group.symbols, is_edge);
      changed = edge != group.symbols.end();
      if (changed) group.symbols.erase(edge);
    }
  }

  const ir::Trace& trace_;
  const passes::SymbolOrder& order_;
  const FusionModel& model_;
  passes::AliasAnalysis aliases_;
  std::vector<FusionRole::Result> result_kinds_;  ///< by value
  std::vector<FusionRole> roles_;                 ///< by symbol
  std::vector<std::uint32_t> segments_;           ///< by symbol: how many symbols before it nothing moves across
  std::vector<std::uint32_t> last_writers_;       ///< by set of values that share memory
  std::vector<std::uint32_t> group_of_;           ///< by symbol: named after one of its symbols
  std::vector<Group> groups_;
  std::vector<std::uint32_t> visited_;  ///< by group: the last search that came by
  std::uint32_t visit_ = 0;
  std::vector<std::uint32_t> earliest_start_;  ///< by position: where the first of the groups begins that reach it
  std::uint32_t earliest_ = 0;
};

}  // namespace

std::vector<FusionGroup> partition(const ir::Trace& trace, const passes::SymbolOrder& order, const FusionModel& model) {
  return Partitioner(trace, order, model).run();
}

}  // namespace thunder::fusion
