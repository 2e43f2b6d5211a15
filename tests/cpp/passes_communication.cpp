// Collectives keep their order in every pass, and what runs between an asynchronous one and its wait stays there.
#include <algorithm>
#include <string_view>
#include <vector>

#include "check.h"
#include "ir/builder.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/common_subexpression_elimination.h"
#include "passes/dead_code_elimination.h"
#include "passes/memory_order.h"
#include "passes/recomputation.h"

namespace thunder::passes {

extern const Pass kLateWrites;

namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kReduce =
    add_row("_c10d_functional::all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor");
const Operator& kWait = add_row("_c10d_functional::wait_tensor(Tensor tensor) -> Tensor");
const Operator& kExp = add_row("aten::exp(Tensor self) -> Tensor");
const Operator& kSum = add_row("aten::sum(Tensor self) -> Tensor");
const Operator& kRepeat = add_row("aten::repeat(Tensor self, SymInt[] repeats) -> Tensor");
const Operator& kAdd = add_row("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator& kCopy = add_row("aten::copy_(Tensor(a!) self, Tensor src) -> Tensor(a!)");

struct Example {
  Trace trace{"f", std::make_shared<TraceContext>()};
  TypePtr small = tensor_type(Dtype::kFloat32, {1});
  TypePtr large = tensor_type(Dtype::kFloat32, {4096});
  ValueId x = trace.add_input(large, "x");

  ValueId reduce(ValueId a) { return add_call(trace, kReduce, {a, "sum", "0"}, large); }
  ValueId wait(ValueId a) { return add_call(trace, kWait, {a}, large); }
  ValueId exp(ValueId a) { return add_call(trace, kExp, {a}, large); }
  ValueId sum(ValueId a) { return add_call(trace, kSum, {a}, small); }
};

/// The names of the operators, without namespaces.
std::vector<std::string_view> names(const Trace& trace) {
  verify(trace, "test");
  std::vector<std::string_view> result;
  for (const BoundSymbol& symbol : trace.symbols) {
    const std::string_view name = symbol.op->name;
    result.push_back(name.substr(name.find("::") + 2));
  }
  return result;
}

using Names = std::vector<std::string_view>;

}  // namespace

TEST(a_collective_that_nobody_reads_is_run) {
  Example e;
  const ValueId unread = e.reduce(e.x);
  e.wait(unread);
  e.exp(e.x);
  e.trace.outputs = {e.x};
  CHECK(names(eliminate_dead_code(e.trace)) == Names({"all_reduce", "wait_tensor"}));
}

TEST(equal_collectives_stay_two) {
  Example e;
  const ValueId first = e.wait(e.reduce(e.x));
  const ValueId second = e.wait(e.reduce(e.x));
  e.trace.outputs = {e.exp(first), e.exp(second)};
  CHECK(names(eliminate_common_subexpressions(e.trace)) == names(e.trace));
}

TEST(a_collective_is_not_run_again) {
  Example e;
  e.wait(e.reduce(e.x));
  CHECK(!may_recompute(e.trace.symbols[0], Recompute::kFast));
  CHECK(!may_recompute(e.trace.symbols[1], Recompute::kFast));
}

TEST(what_runs_before_a_wait_does_not_move_behind_it) {
  Example e;
  const ValueId y = e.trace.add_input(e.small, "y");
  const auto repeated = [&] { return add_call(e.trace, kRepeat, {y, ArgumentList{4096}}, e.large); };
  const ValueId started = e.reduce(e.x);
  const ValueId hidden = repeated();
  const ValueId waited = e.wait(started);
  const ValueId other = repeated();
  const ValueId first = e.sum(e.exp(waited));
  const ValueId second = e.sum(other);
  e.trace.outputs = {first, second, e.sum(hidden)};
  CHECK(names(order_for_memory(e.trace, true)) ==
        Names({"all_reduce", "repeat", "wait_tensor", "exp", "sum", "repeat", "sum", "sum"}));
}

TEST(a_write_before_a_wait_stays_there) {
  Example e;
  const ValueId y = e.trace.add_input(e.large, "y");
  const ValueId started = e.reduce(e.x);
  add_symbol(e.trace, kCopy, {y, e.x}, {Argument(None{})});
  e.trace.outputs = {e.exp(e.wait(started))};
  CHECK(names(kLateWrites.run(e.trace, &find_row)) == names(e.trace));
}

}  // namespace thunder::passes
