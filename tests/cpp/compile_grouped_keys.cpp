// Attention that takes fewer heads of keys and values than of queries, compared with PyTorch's results.
#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "compile/execution.h"
#include "compile/pass_runner.h"
#include "ir/verifier.h"
#include "passes/dead_code_elimination.h"
#include "passes/grouped_keys.h"
#include "recorded_program.h"
#include "rewritten_program.h"

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
  const Tensors results = check::results_of(made, inputs);
  CHECK(at::allclose(results[0], attention(inputs)[0]));
}

TEST(heads_that_follow_one_another_as_they_were_repeated_stay) {
  const auto tiled = [](const at::Tensor& heads) {  // heads 0, 1, 0, 1: no groups of neighbours
    return heads.unsqueeze(1).expand({2, 2, 2, 5, 8}).reshape({2, 4, 5, 8});
  };
  const Tensors inputs{at::randn({2, 4, 5, 8}, at::kDouble), at::randn({2, 2, 5, 8}, at::kDouble),
                       at::randn({2, 2, 5, 8}, at::kDouble)};
  const auto attention = [&](const Tensors& x) {
    return Tensors{at::scaled_dot_product_attention(x[0], tiled(x[1]), tiled(x[2]), {}, 0, /*is_causal=*/true)};
  };
  CHECK(repeats(grouped(check::recorded(attention, inputs), true)));
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
