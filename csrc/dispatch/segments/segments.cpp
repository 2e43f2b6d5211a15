#include "dispatch/segments/segments.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "ir/substitution.h"
#include "ir/trace_sizes.h"
#include "operators/facts.h"
#include "operators/names.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"
#include "tracer/custom_gradient.h"
#include "tracer/data_dependence.h"
#include "tracer/gradients_at_sizes.h"
#include "tracer/operators.h"
#include "tracer/python_function.h"
#include "tracer/symbols.h"

namespace thunder::dispatch {
namespace {

using Numbering = std::unordered_map<std::uint32_t, ir::ValueId>;

using passes::for_each_argument;

bool is_shape_check(const ir::BoundSymbol& symbol) { return symbol.op == tracer::check_shape_operator(); }

/// Symbols [begin, end), then the checks up to `next`.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t next = 0;
  bool is_bare = false;
};

/// An operation whose shape is checked stands alone, as do those that `stands_alone` names.
std::vector<Range> find_ranges(const ir::Trace& trace) {
  std::vector<Range> ranges;
  const auto& symbols = trace.symbols;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    if (tracer::stands_alone(*symbols[i].op)) {
      if (i > begin) ranges.push_back({begin, i, i, false});
      ranges.push_back({i, i + 1, i + 1, true});
      begin = i + 1;
      continue;
    }
    if (!tracer::is_check(*symbols[i].op)) continue;
    std::size_t next = i + 1;
    if (is_shape_check(symbols[i])) {
      while (next < symbols.size() && is_shape_check(symbols[next])) ++next;
      THUNDER_CHECK(i > begin, "segments", "a shape is checked that no operation gave");
      if (i - 1 > begin) ranges.push_back({begin, i - 1, i - 1, false});
      ranges.push_back({i - 1, i, next, true});
    } else {
      ranges.push_back({begin, i, next, false});
    }
    begin = next;
    i = next - 1;
  }
  ranges.push_back({begin, symbols.size(), symbols.size(), false});
  return ranges;
}

/// Copies ranges of a recorded trace.
class Cutter {
 public:
  explicit Cutter(const ir::Trace& recorded)
      : recorded_(recorded),
        aliases_(recorded),
        ranges_(find_ranges(recorded)),
        last_use_(recorded.value_count(), -1),
        last_write_(recorded.value_count(), 0) {
    for (std::size_t i = 0; i < recorded.symbols.size(); ++i) {
      passes::for_each_written(recorded.symbols[i], [&](ir::ValueId id) { last_write_[aliases_.set_of(id)] = i; });
    }
    for (std::size_t k = 0; k < ranges_.size(); ++k) {
      for (std::size_t i = ranges_[k].begin; i < ranges_[k].next; ++i) {
        for_each_argument(recorded.symbols[i], [&](ir::ValueId id) { use(id, k); });
      }
    }
    for (const ir::Argument& output : recorded.outputs) {
      ir::for_each_value(output, [&](ir::ValueId id) { use(id, ranges_.size()); });
    }
  }

  std::optional<std::vector<Segment>> run() {
    if (!find_inputs_for_sizes()) return std::nullopt;
    std::vector<Segment> segments;
    for (std::size_t k = 0; k < ranges_.size(); ++k) {
      std::optional<Segment> segment = cut(k);
      if (!segment) return std::nullopt;
      segments.push_back(std::move(*segment));
    }
    return segments;
  }

 private:
  /// A segment reads its symbols from the sizes of its inputs: it takes some for that.
  bool find_inputs_for_sizes() {
    inputs_for_sizes_.resize(ranges_.size());
    if (ir::symbols_of(recorded_).empty()) return true;
    std::map<std::uint32_t, ir::ValueId> givers;
    for (const ir::SymbolSource& source : ir::symbol_sources(recorded_)) {
      givers.emplace(source.symbol, recorded_.inputs[source.input]);
    }
    for (const ir::FoundSymbol& found : ir::found_symbols(recorded_)) givers.emplace(found.symbol, found.value);
    for (std::size_t k = 0; k < ranges_.size(); ++k) {
      if (ranges_[k].is_bare) {
        require_numbers(recorded_.symbols[ranges_[k].begin]);
        continue;
      }
      const std::optional<Segment> segment = cut(k);
      if (!segment) return false;
      const std::vector<ir::SymbolSource> known = ir::symbol_sources(segment->trace);
      for (const std::uint32_t symbol : tracer::symbols_with_gradients(segment->trace)) {
        if (std::ranges::find(known, symbol, &ir::SymbolSource::symbol) != known.end()) continue;
        inputs_for_sizes_[k].push_back(givers.at(symbol));
        use(givers.at(symbol), k);
      }
    }
    return true;
  }

  /// An operation that stands alone runs as the program called it, with the sizes that it was given.
  static void require_numbers(const ir::BoundSymbol& symbol) {
    const auto has_size = [](const ir::Argument& argument, const auto& self) -> bool {
      const auto* list = argument.get<ir::ArgumentList>();
      return argument.get<ir::Dim>() != nullptr ||
             (list != nullptr && std::ranges::any_of(*list, [&](const auto& each) { return self(each, self); }));
    };
    for (const ir::Argument& argument : symbol.arguments) {
      if (!has_size(argument, has_size)) continue;
      throw UserError(ErrorKind::kNotImplemented,
                      symbol.op->name + ": expected sizes that are numbers, as its result's sizes follow from data");
    }
  }

  void use(ir::ValueId id, std::size_t range) {
    std::int64_t& last = last_use_[index_of(id)];
    last = std::max(last, static_cast<std::int64_t>(range));
  }

  [[nodiscard]] bool can_be_handed_on(ir::ValueId id) const {
    return !std::holds_alternative<ir::ObjectType>(*recorded_.value(id).type);
  }

  ir::ValueId add(Segment& segment, ir::ValueId id, bool is_input) {
    const ir::Value& value = recorded_.value(id);
    const ir::ValueId here =
        is_input ? segment.trace.add_input(value.type, value.name) : segment.trace.add_value(value.type, value.name);
    segment.recorded.push_back(id);
    here_[index_of(id)] = here;
    return here;
  }

  std::optional<Segment> cut(std::size_t k) {
    const Range& range = ranges_[k];
    Segment segment{ir::Trace(ir::TraceKind::kComputation, recorded_.context(), static_cast<std::uint32_t>(k)),
                    {},
                    {},
                    {},
                    range.is_bare,
                    reads_overwritten(range),
                    {}};
    here_.clear();
    std::vector<bool> made(recorded_.value_count(), false);
    bool possible = true;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      for (const ir::Argument& result : recorded_.symbols[i].results) {
        ir::for_each_value(result, [&](ir::ValueId id) { made[index_of(id)] = true; });
      }
      for_each_argument(recorded_.symbols[i], [&](ir::ValueId id) {
        if (made[index_of(id)] || here_.contains(index_of(id))) return;
        possible = possible && can_be_handed_on(id);
        segment.inputs.push_back(id);
        add(segment, id, /*is_input=*/true);
      });
    }
    if (!possible) return std::nullopt;
    for (const ir::ValueId id : inputs_for_sizes_[k]) {
      if (here_.contains(index_of(id))) continue;
      segment.inputs.push_back(id);
      add(segment, id, /*is_input=*/true);
    }
    for (const ir::ValueId id : segment.inputs) segment.trace.memory_of_inputs.push_back(aliases_.set_of(id));
    for (std::size_t i = range.begin; i < range.end; ++i) copy(recorded_.symbols[i], segment);
    add_outputs(k, segment);
    ir::add_known_conditions(recorded_.conditions, segment.trace);
    describe_observation(range, segment);
    return segment;
  }

  /// Running statistics, and counts, are not what a backward reads.
  [[nodiscard]] bool reads_overwritten(const Range& range) const {
    bool found = false;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      if (recorded_.symbols[i].op->name == operators::kClone) continue;
      for_each_argument(recorded_.symbols[i], [&](ir::ValueId id) {
        const ir::TensorType* type = recorded_.tensor_type(id);
        found |= type != nullptr && (ir::is_floating_point(type->dtype) || ir::is_complex(type->dtype)) &&
                 last_write_[aliases_.set_of(id)] >= range.next;
      });
    }
    return found;
  }

  void copy(const ir::BoundSymbol& symbol, Segment& segment) {
    ir::BoundSymbol copied = symbol;
    const auto renumber = [&](ir::ValueId& id) { id = here_.at(index_of(id)); };
    for (ir::Argument& argument : copied.arguments) ir::for_each_value(argument, renumber);
    for (ir::Argument& result : copied.results) {
      ir::for_each_value(result, [&](ir::ValueId& id) { id = add(segment, id, /*is_input=*/false); });
    }
    if (copied.op == tracer::custom_gradient_operator()) copy_gradient(copied, segment);
    segment.trace.add(std::move(copied));
  }

  /// The backward's own values are those of the trace too.
  void copy_gradient(ir::BoundSymbol& symbol, Segment& segment) {
    auto gradient = std::make_shared<tracer::CustomGradient>(tracer::custom_gradient_of(symbol, recorded_));
    const auto renumber = [&](ir::ValueId& id) {
      if (id == ir::kNoValue) return;
      const auto known = here_.find(index_of(id));
      id = known != here_.end() ? known->second : add(segment, id, /*is_input=*/false);
    };
    for (ir::BoundSymbol& step : gradient->symbols) {
      for (ir::Argument& argument : step.arguments) ir::for_each_value(argument, renumber);
      for (ir::Argument& result : step.results) ir::for_each_value(result, renumber);
    }
    for (auto* list : {&gradient->cotangents, &gradient->reads, &gradient->inputs, &gradient->gradients}) {
      std::for_each(list->begin(), list->end(), renumber);
    }
    symbol.arguments[2] = segment.trace.context()->add_object(ir::ObjectKind::kCustomGradient, std::move(gradient));
  }

  void add_outputs(std::size_t k, Segment& segment) {
    for (const ir::BoundSymbol& symbol : segment.trace.symbols) {
      for (const ir::Argument& result : symbol.results) {
        ir::for_each_value(result, [&](ir::ValueId here) {
          const ir::ValueId id = segment.recorded[index_of(here)];
          const bool is_observed = is_checked(k, id);
          if (last_use_[index_of(id)] <= static_cast<std::int64_t>(k) && !is_observed) return;
          if (!can_be_handed_on(id)) return;
          segment.outputs.push_back(id);
          segment.trace.outputs.emplace_back(here);
        });
      }
    }
  }

  [[nodiscard]] bool is_checked(std::size_t k, ir::ValueId id) const {
    bool found = false;
    for (std::size_t i = ranges_[k].end; i < ranges_[k].next; ++i) {
      for_each_argument(recorded_.symbols[i], [&](ir::ValueId checked) { found |= checked == id; });
    }
    return found;
  }

  void describe_observation(const Range& range, Segment& segment) {
    for (std::size_t i = range.end; i < range.next; ++i) {
      const ir::BoundSymbol& check = recorded_.symbols[i];
      segment.observation.check = check.op;
      segment.observation.location = check.location;
      segment.observation.values.push_back(std::get<ir::ValueId>(check.arguments[0].content));
    }
  }

  const ir::Trace& recorded_;
  passes::AliasAnalysis aliases_;
  std::vector<Range> ranges_;
  std::vector<std::int64_t> last_use_;   ///< the last range that uses a value; -1: none
  std::vector<std::size_t> last_write_;  ///< by alias set: the position of the last symbol that writes to it
  std::vector<std::vector<ir::ValueId>> inputs_for_sizes_;  ///< by range
  Numbering here_;
};

bool has_running_statistics(const ir::BoundSymbol& symbol) {
  return symbol.op->effect && symbol.op->style == ir::CallStyle::kTorchOperator;
}

void add_copy(ir::Trace& trace, ir::ValueId target, ir::ValueId source) {
  ir::BoundSymbol symbol = tracer::copy_symbol(target, source);
  symbol.comment = "written by the program";
  trace.add(std::move(symbol));
}

}  // namespace

std::vector<std::uint32_t> inputs_with_statistics(const ir::Trace& recorded) {
  std::vector<std::uint32_t> found;
  for (const ir::BoundSymbol& symbol : recorded.symbols) {
    for (std::size_t i = 0; has_running_statistics(symbol) && i < symbol.arguments.size(); ++i) {
      const auto* id = symbol.arguments[i].get<ir::ValueId>();
      if (id == nullptr || !symbol.op->parameters[i].name.starts_with("running_")) continue;
      const auto input = std::ranges::find(recorded.inputs, *id) - recorded.inputs.begin();
      if (input != std::ssize(recorded.inputs)) found.push_back(static_cast<std::uint32_t>(input));
    }
  }
  return found;
}

std::vector<std::uint32_t> statistics_before_errors(const ir::Trace& recorded) {
  const auto first = std::ranges::find_if(recorded.symbols, has_running_statistics);
  const bool may_raise = std::any_of(first, recorded.symbols.end(), [&](const ir::BoundSymbol& symbol) {
    return operators::may_raise_for_data(recorded, symbol);
  });
  return may_raise ? inputs_with_statistics(recorded) : std::vector<std::uint32_t>();
}

ir::Trace defer_effects(const ir::Trace& recorded) {
  if (std::ranges::none_of(recorded.symbols, has_running_statistics)) return recorded;
  ir::Trace trace = recorded.empty_copy("defer_effects");
  ir::Substitution substitution(recorded.value_count());
  std::vector<std::pair<ir::ValueId, ir::ValueId>> copies;
  for (ir::BoundSymbol symbol : recorded.symbols) {
    for (std::size_t i = 0; has_running_statistics(symbol) && i < symbol.arguments.size(); ++i) {
      const auto* id = symbol.arguments[i].get<ir::ValueId>();
      if (id == nullptr || !symbol.op->parameters[i].name.starts_with("running_")) continue;
      if (substitution.find(*id) != nullptr) continue;
      const ir::ValueId copy = trace.add_value(trace.value(*id).type, trace.value(*id).name);
      ir::BoundSymbol clone = tracer::clone_symbol(*id, copy);
      clone.location = symbol.location;
      substitution.set(*id, copy);
      copies.emplace_back(*id, copy);
      trace.add(std::move(clone));
    }
    substitution.apply(symbol.arguments);
    trace.add(std::move(symbol));
  }
  substitution.apply(trace.outputs);
  for (const auto& [target, source] : copies) add_copy(trace, target, source);
  return trace;
}

std::optional<std::vector<Segment>> cut_at_checks(const ir::Trace& recorded) { return Cutter(recorded).run(); }

}  // namespace thunder::dispatch
