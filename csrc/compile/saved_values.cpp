#include "compile/saved_values.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::compile {
namespace {

constexpr std::uint32_t kNone = runtime::SavedValue::kNone;

/// What the symbols read that `reads` is true for, and what the trace returns.
template <typename Predicate>
std::unordered_set<ir::ValueId> values_read(const ir::Trace& trace, Predicate reads) {
  std::unordered_set<ir::ValueId> read;
  const auto add = [&](ir::ValueId id) { read.insert(id); };
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    if (reads(symbol.op->style)) passes::for_each_argument(symbol, add);
  }
  for (const ir::Argument& output : trace.outputs) ir::for_each_value(output, add);
  return read;
}

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

/// For each value of a backward trace, which of its last `count` inputs, the cotangents, it follows from. Empty: none.
std::vector<std::vector<bool>> followed_cotangents(const ir::Trace& backward, std::size_t count) {
  std::vector<std::vector<bool>> followed(backward.value_count());
  const auto merge = [](std::vector<bool>& into, const std::vector<bool>& from) {
    if (into.empty()) into = from;
    for (std::size_t c = 0; c < from.size(); ++c) into[c] = into[c] || from[c];
  };
  for (std::size_t c = 0; c < count; ++c) {
    std::vector<bool>& itself = followed[ir::index_of(backward.inputs[backward.inputs.size() - count + c])];
    itself.resize(count);
    itself[c] = true;
  }
  const auto follow = [&](const ir::BoundSymbol& symbol) {
    std::vector<bool> read;
    const auto add = [&](ir::ValueId id) { merge(read, followed[ir::index_of(id)]); };
    passes::for_each_argument(symbol, add);
    const auto give = [&](ir::ValueId id) { merge(followed[ir::index_of(id)], read); };
    passes::for_each_result(symbol, give);
    passes::for_each_written(symbol, give);
  };
  for (const ir::BoundSymbol& symbol : backward.symbols) {
    if (symbol.op->style == ir::CallStyle::kBlock) {
      std::ranges::for_each(symbol.nested, follow);
    } else {
      follow(symbol);
    }
  }
  return followed;
}

}  // namespace

std::pair<ir::Trace, ir::Trace> drop_unused_saved_values(const ir::Trace& forward, const ir::Trace& backward,
                                                         std::size_t output_count) {
  const auto read = values_read(backward, [](ir::CallStyle style) { return style != ir::CallStyle::kComment; });
  ir::Trace new_forward = forward;
  ir::Trace new_backward = backward;
  const std::size_t saved_count = forward.outputs.size() - output_count;
  new_forward.outputs.resize(output_count);
  new_backward.inputs.clear();
  for (std::size_t i = 0; i < backward.inputs.size(); ++i) {
    if (i < saved_count && !read.contains(backward.inputs[i])) continue;
    if (i < saved_count) new_forward.outputs.push_back(forward.outputs[output_count + i]);
    new_backward.inputs.push_back(backward.inputs[i]);
  }
  return {std::move(new_forward), std::move(new_backward)};
}

void describe_boundary(const ir::Trace& forward, const ir::Trace& backward, const transforms::ForwardBackward& gradient,
                       runtime::DifferentiableProgram& program) {
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
    if (inputs.of_value(*id) != kNone) {
      program.outputs[i].kind = Output::kInput;
    } else {
      program.outputs[i].shares_input = inputs.of_memory(*id);
    }
  }
  THUNDER_CHECK(std::ranges::is_sorted(gradient.differentiable_outputs), "compile/saved_values",
                "differentiable outputs are not in order");
  // Fusions look at the strides of what they get.
  const auto minds_strides = values_read(backward, [](ir::CallStyle style) { return style != ir::CallStyle::kBlock; });
  for (std::size_t i = 0; i < gradient.differentiable_outputs.size(); ++i) {
    auto& output = program.outputs[gradient.differentiable_outputs[i]];
    if (output.kind == Output::kConstant) output.kind = Output::kDifferentiable;
    output.takes_cotangent = true;
    const ir::TensorType* type = backward.tensor_type(backward.inputs[saved_count + i]);
    if (type != nullptr && minds_strides.contains(backward.inputs[saved_count + i])) {
      output.cotangent_strides = bridge::hints(type->strides);
    }
  }
  const std::size_t cotangent_count = gradient.differentiable_outputs.size();
  const std::vector<std::vector<bool>> followed = followed_cotangents(backward, cotangent_count);
  for (const std::size_t i : gradient.differentiable_inputs) {
    program.differentiable_inputs.push_back(static_cast<std::uint32_t>(i));
    const auto* id = backward.outputs[i].get<ir::ValueId>();
    std::vector<bool> follows = id == nullptr ? std::vector<bool>() : followed[ir::index_of(*id)];
    // What follows from none are zeros that a formula made without looking.
    if (follows.empty()) follows.resize(cotangent_count, true);
    program.follows.push_back(std::move(follows));
  }
}

}  // namespace thunder::compile
