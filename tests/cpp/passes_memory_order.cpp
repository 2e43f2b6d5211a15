#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/memory_estimate.h"
#include "passes/memory_order.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kExpand = add_row("aten::repeat(Tensor self, SymInt[] repeats) -> Tensor");
const Operator& kSum = add_row("aten::sum(Tensor self) -> Tensor");
const Operator& kAdd = add_row("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator& kRand = add_row("aten::rand_like(Tensor self) -> Tensor", /*random=*/true);

struct Example {
  Trace trace{"computation", std::make_shared<TraceContext>()};
  TypePtr small = tensor_type(Dtype::kFloat32, {1});
  TypePtr large = tensor_type(Dtype::kFloat32, {1000});
  ValueId x = trace.add_input(small, "x");

  ValueId expand() { return add_call(trace, kExpand, {x, ArgumentList{1000}}, large); }
  ValueId sum(ValueId value) { return add_call(trace, kSum, {value}, small); }
};

/// Both large values are made at first, though one is enough at a time.
Trace two_large_values() {
  Example e;
  const ValueId first = e.expand();
  const ValueId second = e.expand();
  const ValueId a = e.sum(first);
  const ValueId b = e.sum(second);
  e.trace.outputs = {add_call(e.trace, kAdd, {a, b}, e.small)};
  return std::move(e.trace);
}

}  // namespace

TEST(peak_counts_what_lives_at_one_time) {
  CHECK_EQ(estimate_peak_memory(two_large_values(), false), std::int64_t{8004});
}

TEST(what_a_fusion_keeps_to_itself_needs_no_memory) {
  Example e;
  const TypePtr huge = tensor_type(Dtype::kFloat32, {1 << 29});
  const ValueId large = add_call(e.trace, kExpand, {e.x, ArgumentList{1 << 29}}, huge);
  const ValueId total = e.sum(large);
  BoundSymbol fused = e.trace.symbols.back();
  CHECK(may_raise(e.trace, e.trace.symbols.front()));
  fused.arguments = {e.x};
  fused.results = {total};
  fused.nested = {e.trace.symbols.front(), e.trace.symbols.back()};
  CHECK(!may_raise(e.trace, fused));
}

TEST(what_is_needed_later_is_made_later) {
  const Trace result = order_for_memory(two_large_values(), false);
  verify(result, "test");
  CHECK_EQ(print(result), R"(# computation: memory_order
import torch

@torch.no_grad()
def computation(x):
  # x: "cpu f32[1]"
  t1 = torch.ops.aten.repeat.default(x, [1000])  # t1: "cpu f32[1000]"
  t3 = torch.ops.aten.sum.default(t1)  # t3: "cpu f32[1]"
  del t1
  t2 = torch.ops.aten.repeat.default(x, [1000])  # t2: "cpu f32[1000]"
  del x
  t4 = torch.ops.aten.sum.default(t2)  # t4: "cpu f32[1]"
  del t2
  t5 = torch.ops.aten.add.Tensor(t3, t4)  # t5: "cpu f32[1]"
  del t3, t4
  return (t5,)
)");
  CHECK_EQ(estimate_peak_memory(result, false), std::int64_t{4008});
}

TEST(an_order_that_is_no_better_stays) {
  Example e;
  const ValueId large = e.expand();
  e.trace.outputs = {e.sum(large)};
  CHECK(order_for_memory(e.trace, false).symbols.front().op == &kExpand);
}

TEST(random_operations_keep_their_order) {
  Example e;
  const ValueId a = add_call(e.trace, kRand, {e.expand()}, e.large);
  const ValueId b = add_call(e.trace, kRand, {e.expand()}, e.large);
  const ValueId second = e.sum(b);
  e.trace.outputs = {second, e.sum(a)};
  const Trace result = order_for_memory(e.trace, false);
  std::vector<ValueId> drawn;
  for (const BoundSymbol& symbol : result.symbols) {
    if (symbol.op == &kRand) drawn.push_back(std::get<ValueId>(symbol.results[0].content));
  }
  CHECK(drawn == (std::vector<ValueId>{a, b}));
}

}  // namespace thunder::passes
