#include "compile/saving_steps.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "compile/saved_values.h"
#include "passes/common_subexpression_elimination.h"
#include "passes/rematerialization.h"
#include "passes/symbol_facts.h"

namespace thunder::compile {
namespace {

/// The bytes that a forward may save: a part of its GPU's memory. Above it, memory is what a user of such a model
/// lacks.
std::optional<std::int64_t> most_saved(const Compilation& compilation, const ir::Trace& forward) {
  constexpr std::int64_t kPart = 5;
  const fusion::Target* target = target_on_gpu(compilation);
  const auto on_gpu =
      std::ranges::find_if(forward.inputs, [&](ir::ValueId id) { return passes::is_on_gpu(forward.tensor_type(id)); });
  if (target == nullptr || target->memory == nullptr || on_gpu == forward.inputs.end()) return std::nullopt;
  const std::optional<std::int64_t> bytes = target->memory(forward.tensor_type(*on_gpu)->device);
  return bytes ? std::optional(*bytes / kPart) : std::nullopt;
}

}  // namespace

void eliminate_in_forward(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  runner.keep(passes::kCommonSubexpressionElimination.name,
              passes::eliminate_common_subexpressions(line.history.last(), saved_range(compilation).begin),
              line.history);
}

void drop_saved(Compilation& compilation, const PassRunner& runner) {
  if (!compilation.gradient) return;
  auto [forward, backward] = drop_unused_saved_values(
      compilation.forward.history.last(), compilation.backward.history.last(), compilation.gradient->output_count);
  runner.keep("drop_unused_saved_values", std::move(forward), compilation.forward.history);
  runner.keep("drop_unused_saved_values", std::move(backward), compilation.backward.history);
}

void rematerialize(Compilation& compilation, const PassRunner& runner) {
  if (!compilation.gradient || compilation.rematerialize == passes::Recompute::kNothing) return;
  const ir::Trace& recorded = compilation.forward.history.last();
  auto [forward, backward] = passes::rematerialize(
      recorded, compilation.backward.history.last(),
      {compilation.rematerialize, compilation.gradient->output_count, most_saved(compilation, recorded)},
      &find_operator);
  runner.keep(passes::kRematerialization, std::move(forward), compilation.forward.history);
  runner.keep(passes::kRematerialization, std::move(backward), compilation.backward.history);
}

void drop_unread(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const SavedRange saved = saved_range(compilation);
  ir::Trace trace = drop_unread_inputs(line.history.last(), saved.end - saved.begin, line.reads);
  if (std::ranges::find(line.reads, false) == line.reads.end()) return;
  runner.keep("drop_unread_inputs", std::move(trace), line.history);
}

}  // namespace thunder::compile
