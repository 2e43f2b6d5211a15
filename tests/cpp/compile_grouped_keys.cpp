// Attention that takes fewer heads of keys and values than of queries, compared with PyTorch's results.
#include <ATen/ATen.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "check.h"
#include "compile/compiler.h"
#include "compile/execution.h"
#include "compile/executor_list.h"
#include "compile/pass_runner.h"
#include "ir/verifier.h"
#include "passes/dead_code_elimination.h"
#include "passes/grouped_keys.h"
#include "recorded_program.h"

namespace thunder::compile {
namespace {

using check::Tensors;

at::Tensor repeated(const at::Tensor& heads, std::int64_t times) {
  const auto sizes = heads.sizes();
  return heads.unsqueeze(2)
      .expand({sizes[0], sizes[1], times, sizes[2], sizes[3]})
      .reshape({sizes[0], sizes[1] * times, sizes[2], sizes[3]});
}

Tensors attention(const Tensors& x, double dropout = 0) {
  return {at::scaled_dot_product_attention(x[0], repeated(x[1], 3).to(at::kDouble), repeated(x[2], 3), {}, dropout,
                                           /*is_causal=*/true)};
}

Tensors operands() {
  return {at::randn({2, 6, 5, 8}, at::kDouble), at::randn({2, 2, 5, 8}), at::randn({2, 2, 5, 8}, at::kDouble)};
}

bool repeats(const ir::Trace& trace) {
  return std::ranges::any_of(trace.symbols,
                             [](const ir::BoundSymbol& symbol) { return symbol.op->name == "aten::expand"; });
}

ir::Trace grouped(const ir::Trace& trace, bool takes_groups) {
  const auto takes = [takes_groups](const passes::GroupedAttention& heads) {
    CHECK(heads.key.sizes == ir::Dims({2, 2, 5, 8}) && heads.value.sizes == heads.key.sizes);
    CHECK(heads.key.dtype == ir::Dtype::kFloat64);
    return takes_groups;
  };
  ir::Trace made =
      passes::kDeadCodeElimination.run(passes::group_keys(trace, ir::DeviceType::kCpu, takes), &find_operator);
  ir::verify(made, "test");
  return made;
}

}  // namespace

TEST(repeated_keys_and_values_are_taken_as_they_are) {
  const Tensors inputs = operands();
  const ir::Trace made = grouped(check::recorded([](const Tensors& x) { return attention(x); }, inputs), true);
  CHECK(!repeats(made));
  const runtime::Program program = lower_directly(made, with_fallback({}));
  Tensors given = inputs;
  Tensors results(program.output_count());
  program.run(std::span(given), std::span(results));
  CHECK(at::allclose(results[0], attention(inputs)[0]));
}

TEST(what_the_kernel_does_not_take_is_repeated) {
  const ir::Trace trace = check::recorded([](const Tensors& x) { return attention(x); }, operands());
  CHECK(repeats(grouped(trace, false)));
}

TEST(groups_where_something_is_dropped_stay) {
  const ir::Trace trace = check::recorded([](const Tensors& x) { return attention(x, 0.5); }, operands());
  CHECK(repeats(grouped(trace, true)));
}

}  // namespace thunder::compile
