#include "compile/saving_steps.h"

#include <algorithm>
#include <utility>

#include "compile/saved_values.h"
#include "passes/common_subexpression_elimination.h"
#include "passes/rematerialization.h"

namespace thunder::compile {

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
  auto [forward, backward] =
      passes::rematerialize(compilation.forward.history.last(), compilation.backward.history.last(),
                            {compilation.rematerialize, compilation.gradient->output_count}, &find_operator);
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
