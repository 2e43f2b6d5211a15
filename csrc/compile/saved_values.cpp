#include "compile/saved_values.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "ir/layout.h"
#include "ir/trace_sizes.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::compile {
namespace {

constexpr std::uint32_t kNone = runtime::SavedValue::kNone;

/// Positions of values, by value and by the memory that they may share. The first position counts.
class Positions {
 public:
  explicit Positions(const passes::AliasAnalysis& aliases) : aliases_(aliases) {}
  void add(const ir::Argument& argument, std::size_t position) {
    const auto* id = argument.get<ir::ValueId>();
    if (id == nullptr) return;
    by_value_.emplace(*id, static_cast<std::uint32_t>(position));
    by_memory_.emplace(aliases_.set_of(*id), static_cast<std::uint32_t>(position));
  }
  [[nodiscard]] std::uint32_t of_value(ir::ValueId id) const { return find(by_value_, id); }
  [[nodiscard]] std::uint32_t of_memory(ir::ValueId id) const { return find(by_memory_, aliases_.set_of(id)); }

 private:
  template <typename Map>
  static std::uint32_t find(const Map& map, typename Map::key_type key) {
    const auto found = map.find(key);
    return found == map.end() ? kNone : found->second;
  }

  const passes::AliasAnalysis& aliases_;
  std::unordered_map<ir::ValueId, std::uint32_t> by_value_;
  std::unordered_map<std::uint32_t, std::uint32_t> by_memory_;
};

runtime::SavedValue describe_saved(const ir::Argument& saved, const ir::Trace& forward, const Positions& inputs,
                                   const Positions& outputs) {
  using Kind = runtime::SavedValue::Kind;
  const auto* id = saved.get<ir::ValueId>();
  if (id == nullptr || forward.tensor_type(*id) == nullptr) return {};
  if (inputs.of_value(*id) != kNone) return {.kind = Kind::kVariable};
  if (outputs.of_value(*id) != kNone) return {.kind = Kind::kOutput, .index = outputs.of_value(*id)};
  const std::uint32_t input = inputs.of_memory(*id);
  const std::uint32_t output = outputs.of_memory(*id);
  if (input == kNone && output == kNone) return {};
  return {.kind = Kind::kVariable, .shares_input = input, .shares_output = input == kNone ? output : kNone};
}

/// The value that each copy with the recorded strides, as outputs may be, is a copy of.
std::unordered_map<ir::ValueId, ir::ValueId> originals_of_copies(const ir::Trace& trace) {
  std::unordered_map<ir::ValueId, ir::ValueId> originals;
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    if (symbol.op->name != "thunder::restride") continue;
    originals.emplace(passes::single_result(symbol), passes::value_argument(symbol, 0));
  }
  return originals;
}

/// Which outputs with cotangents others are computed from, both by the numbers of their cotangents.
Feeds feeds_of_outputs(const ir::Trace& computation, std::span<const std::size_t> differentiable_outputs) {
  std::vector<ir::ValueId> values;
  if (differentiable_outputs.size() < 2) return {};
  std::vector<FeedSource> sources;
  const std::unordered_map<ir::ValueId, ir::ValueId> originals = originals_of_copies(computation);
  for (const std::size_t i : differentiable_outputs) {
    values.push_back(std::get<ir::ValueId>(computation.outputs[i].content));
    const auto original = originals.find(values.back());
    sources.push_back({original == originals.end() ? values.back() : original->second});
  }
  Feeds feeds = find_feeds(computation, sources, values);
  std::erase_if(feeds, [](const auto& feed) { return feed.first == feed.second; });
  return feeds;
}

}  // namespace

Feeds find_feeds(const ir::Trace& trace, std::span<const FeedSource> from, std::span<const ir::ValueId> to) {
  std::unordered_map<ir::ValueId, std::unordered_set<std::uint32_t>> behind;  // the sources that a value depends on
  for (std::uint32_t i = 0; i < from.size(); ++i) behind[from[i].value].insert(i);
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    std::unordered_set<std::uint32_t> sources;
    passes::for_each_argument(symbol, [&](ir::ValueId id) {
      if (const auto found = behind.find(id); found != behind.end())
        sources.insert(found->second.begin(), found->second.end());
    });
    if (sources.empty()) continue;
    passes::for_each_result(symbol, [&](ir::ValueId id) {
      const ir::TensorType* type = trace.tensor_type(id);
      if (type == nullptr || !type->requires_grad) return;
      for (const std::uint32_t source : sources) {
        if (from[source].end != id) behind[id].insert(source);
      }
    });
  }
  Feeds feeds;
  for (std::uint32_t i = 0; i < to.size(); ++i) {
    for (const std::uint32_t source : behind[to[i]]) feeds.emplace_back(source, i);
  }
  std::ranges::sort(feeds);
  return feeds;
}

std::pair<ir::Trace, ir::Trace> drop_unused_saved_values(const ir::Trace& forward, const ir::Trace& backward,
                                                         std::size_t output_count) {
  const ir::Uses uses(backward);
  const std::vector<bool> gives_symbols = ir::gives_symbols(backward);
  ir::Trace new_forward = forward;
  ir::Trace new_backward = backward;
  const std::size_t saved_count = forward.outputs.size() - output_count;
  new_forward.outputs.resize(output_count);
  new_backward.inputs.clear();
  for (std::size_t i = 0; i < backward.inputs.size(); ++i) {
    if (i < saved_count && uses.count(backward.inputs[i]) == 0 && !gives_symbols[i]) continue;
    if (i < saved_count) new_forward.outputs.push_back(forward.outputs[output_count + i]);
    new_backward.inputs.push_back(backward.inputs[i]);
  }
  return {std::move(new_forward), std::move(new_backward)};
}

ir::Trace drop_unread_inputs(const ir::Trace& backward, std::size_t saved_count, std::vector<bool>& reads) {
  const ir::Uses uses(backward);
  const std::vector<bool> gives_symbols = ir::gives_symbols(backward);
  ir::Trace result = backward;
  result.inputs.clear();
  for (std::size_t i = 0; i < backward.inputs.size(); ++i) {
    const bool stays = i >= saved_count || uses.count(backward.inputs[i]) != 0 || gives_symbols[i];
    if (i < saved_count) reads.push_back(stays);
    if (stays) result.inputs.push_back(backward.inputs[i]);
  }
  return result;
}

void describe_boundary(const ir::Trace& computation, const ir::Trace& forward,
                       const transforms::ForwardBackward& gradient, runtime::DifferentiableProgram& program) {
  using Output = runtime::DifferentiableProgram::Output;
  const passes::AliasAnalysis aliases(forward);
  Positions inputs(aliases);
  Positions outputs(aliases);
  for (std::size_t i = 0; i < forward.inputs.size(); ++i) inputs.add(forward.inputs[i], i);
  for (std::size_t i = 0; i < gradient.output_count; ++i) outputs.add(forward.outputs[i], i);

  const std::size_t saved_count = forward.outputs.size() - gradient.output_count;
  for (std::size_t i = 0; i < saved_count; ++i) {
    program.saved.push_back(describe_saved(forward.outputs[gradient.output_count + i], forward, inputs, outputs));
  }
  program.outputs.resize(gradient.output_count);
  for (std::size_t i = 0; i < gradient.output_count; ++i) {
    const auto* id = forward.outputs[i].get<ir::ValueId>();
    if (id == nullptr) continue;
    if (inputs.of_value(*id) != kNone) program.outputs[i].kind = Output::kInput;
    program.outputs[i].shares_input = inputs.of_memory(*id);
  }
  THUNDER_CHECK(std::ranges::is_sorted(gradient.differentiable_outputs), "compile/saved_values",
                "differentiable outputs are not in order");
  for (const std::size_t i : gradient.differentiable_outputs) {
    auto& output = program.outputs[i];
    // A custom gradient may hand an input on with a history of its own.
    const ir::ValueId id = std::get<ir::ValueId>(computation.outputs[i].content);
    const bool was_input = std::ranges::find(computation.inputs, id) != computation.inputs.end();
    if (output.kind != Output::kInput || !was_input) output.kind = Output::kDifferentiable;
    output.takes_cotangent = true;
  }
  program.feeds = feeds_of_outputs(computation, gradient.differentiable_outputs);
  for (const std::size_t i : gradient.differentiable_inputs) {
    program.differentiable_inputs.push_back(static_cast<std::uint32_t>(i));
  }
}

std::vector<runtime::CotangentLayout> cotangent_layouts(const ir::Trace& backward, std::size_t first) {
  // Fusions look at the strides of what they get.
  const ir::Uses uses(backward);
  const auto minds_strides = [&](ir::ValueId id) {
    const auto is_no_block = [&](std::uint32_t i) { return backward.symbols[i].op->style != ir::CallStyle::kBlock; };
    return uses.is_output(id) || std::ranges::any_of(uses.readers(id), is_no_block);
  };
  std::vector<runtime::CotangentLayout> layouts;
  for (std::size_t i = first; i < backward.inputs.size(); ++i) {
    const ir::TensorType* type = backward.tensor_type(backward.inputs[i]);
    runtime::CotangentLayout& layout = layouts.emplace_back();
    if (type == nullptr || !minds_strides(backward.inputs[i])) continue;
    if (ir::has_symbols(*type)) {
      layout.order = ir::dims_by_stride(*type);
    } else {
      layout.strides = bridge::hints(type->strides);
    }
  }
  return layouts;
}

}  // namespace thunder::compile
