#include "check.h"
#include "fusion/batch_members.h"
#include "fusion/batches.h"
#include "fusion/block_results.h"
#include "fusion/region.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"

namespace thunder::fusion {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)
using passes::add_row;

const Operator& kExp = add_row("aten::exp(Tensor self) -> Tensor");
const Operator& kMm = add_row("aten::mm(Tensor self, Tensor mat2) -> Tensor");
const Operator& kCat = add_row("aten::cat(Tensor[] tensors, int dim=0) -> Tensor");
const Operator& kFill = add_row("aten::fill_(Tensor(a!) self, Scalar value) -> Tensor(a!)");
const Operator& kReduce =
    add_row("_c10d_functional::all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor");
const Operator& kCopy = add_row("aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)");

constexpr Target kTarget{.accepts = [](const TensorType&) { return true; },
                         .has = [](ElementOp, ComputeType) { return true; },
                         .largest_in_batch = 4096,
                         .most_held = 1024};

FusionRole role(const BoundSymbol& symbol, const Trace& /*trace*/) {
  if (symbol.op != &kExp && symbol.op != &kCat) return {};
  return {FusionRole::Kind::kWork, passes::single_result(symbol), 0, {FusionRole::Result::kElements}, 0, 1};
}

struct Example {
  Trace trace{"f", std::make_shared<TraceContext>()};
  TypePtr matrix = tensor_type(Dtype::kFloat32, {8, 8});  // 256 bytes
  ValueId x = trace.add_input(matrix, "x");
  ValueId w = trace.add_input(matrix, "w");
  ValueId v = trace.add_input(matrix, "v");
  BatchModel model{"cuda", &kTarget, &role, [](const BoundSymbol&, const Trace&) { return false; }};

  ValueId kernel(ValueId of) {
    const ValueId made = trace.add_value(matrix);
    BoundSymbol operation;
    operation.op = &kExp;
    operation.arguments = {of};
    operation.results = {made};
    trace.add(make_block("cuda", kKernel, {of}, {made}, {operation}));
    return made;
  }
  ValueId exp(ValueId of) { return add_call(trace, kExp, {of}, matrix); }
  ValueId cat(ValueId a, ValueId b) {
    return add_call(trace, kCat, {ArgumentList{a, b}, 0}, tensor_type(Dtype::kFloat32, {16, 8}));
  }
  ValueId mm(ValueId a, ValueId b) { return add_call(trace, kMm, {a, b}, matrix); }

  [[nodiscard]] Trace batched() const {
    Trace made = batch_kernels(trace, model).value_or(trace);
    verify(made, "test");
    return made;
  }
  /// The kernels of each symbol that is a batch; 0 for others.
  [[nodiscard]] std::vector<std::size_t> sizes() const {
    std::vector<std::size_t> sizes;
    for (const BoundSymbol& symbol : batched().symbols) sizes.push_back(is_batch(symbol) ? symbol.nested.size() : 0);
    return sizes;
  }
};

using Sizes = std::vector<std::size_t>;

}  // namespace

TEST(kernels_stand_together_where_the_first_result_is_read) {
  Example e;
  const ValueId a = e.mm(e.x, e.x);
  const ValueId b = e.mm(a, e.kernel(e.w));
  e.trace.outputs = {e.mm(b, e.kernel(e.v))};
  CHECK_EQ(print(e.batched(), {.deletions = false}), R"(# f: kernel_batches
import torch
from thunder import prims

@torch.no_grad()
def f(x, w, v):
  # x: "cpu f32[8, 8]"
  # w: "cpu f32[8, 8]"
  # v: "cpu f32[8, 8]"
  t3 = torch.ops.aten.mm.default(x, x)  # t3: "cpu f32[8, 8]"
  with prims.fused("cuda", [w, v], kind="batch"):  # 2 kernels
    with prims.fused("cuda", [w]):
      t4 = torch.ops.aten.exp.default(w)  # t4: "cpu f32[8, 8]"
    with prims.fused("cuda", [v]):
      t6 = torch.ops.aten.exp.default(v)  # t6: "cpu f32[8, 8]"
  t5 = torch.ops.aten.mm.default(t3, t4)  # t5: "cpu f32[8, 8]"
  t7 = torch.ops.aten.mm.default(t5, t6)  # t7: "cpu f32[8, 8]"
  return (t7,)
)");
}

TEST(kernels_wait_for_the_last_one_where_nobody_reads_their_results) {
  Example e;
  const ValueId a = e.mm(e.x, e.w);
  const ValueId b = e.kernel(a);
  const ValueId c = e.mm(a, e.v);
  e.trace.outputs = {b, e.kernel(c)};
  CHECK((e.sizes() == Sizes{0, 0, 2}));
}

TEST(operations_alone_take_part_where_they_are_many) {
  Example e;
  e.trace.outputs = {e.exp(e.x), e.exp(e.w), e.exp(e.v)};
  CHECK((e.sizes() == Sizes{0, 0, 0}));
  e.trace.outputs.emplace_back(e.kernel(e.x));
  CHECK((e.sizes() == Sizes{4}));
  e.model.is_claimed = [](const BoundSymbol&, const Trace&) { return true; };
  CHECK((e.sizes() == Sizes{0, 0, 0, 0}));
}

TEST(two_concatenations_are_worth_a_batch) {
  Example e;
  e.trace.outputs = {e.cat(e.x, e.w), e.cat(e.w, e.v)};
  CHECK((e.sizes() == Sizes{2}));
}

TEST(what_reads_another_result_is_in_another_batch) {
  Example e;
  const ValueId a = e.kernel(e.x);
  const ValueId b = e.kernel(a);
  e.trace.outputs = {b, e.kernel(e.w), e.kernel(e.mm(b, b))};
  for (const BoundSymbol& symbol : e.batched().symbols) {
    if (!is_batch(symbol)) continue;
    for (const BoundSymbol& kernel : symbol.nested) CHECK(kernel.results != symbol.arguments[1]);
  }
  CHECK((e.sizes() == Sizes{0, 2, 0, 0} || e.sizes() == Sizes{0, 0, 2, 0} || e.sizes() == Sizes{0, 0, 0, 2} ||
         e.sizes() == Sizes{2, 0, 0, 0}));
}

TEST(no_more_bytes_live_longer_than_the_target_says) {
  Example e;
  ValueId y = e.x;
  for (int i = 0; i < 6; ++i) y = e.mm(y, e.kernel(e.w));
  e.trace.outputs = {y};
  CHECK((e.sizes() == Sizes{5, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(large_kernels_stay_alone) {
  Example e;
  e.matrix = tensor_type(Dtype::kFloat32, {64, 64});
  e.trace.outputs = {e.kernel(e.x), e.kernel(e.w)};
  CHECK((e.sizes() == Sizes{0, 0}));
}

TEST(nothing_moves_across_a_write_to_what_it_reads) {
  Example e;
  const ValueId a = e.kernel(e.x);
  add_symbol(e.trace, kFill, {e.x, 1.0}, {Argument(None{})});
  e.trace.outputs = {a, e.kernel(e.x)};
  CHECK((e.sizes() == Sizes{0, 0, 0}));
  Example other;
  const ValueId b = other.kernel(other.w);
  add_symbol(other.trace, kFill, {other.x, 1.0}, {Argument(None{})});
  other.trace.outputs = {b, other.kernel(other.x)};
  CHECK((other.sizes() == Sizes{0, 2}));
}

TEST(nothing_moves_across_communication) {
  Example e;
  const ValueId a = e.kernel(e.x);
  const ValueId sum = add_call(e.trace, kReduce, {e.w, "sum", "0"}, e.matrix);
  e.trace.outputs = {a, sum, e.kernel(e.v)};
  CHECK((e.sizes() == Sizes{0, 0, 0}));
}

TEST(kernels_that_write_to_inputs_do_not_move_up) {
  Example e;
  const auto update = [&](ValueId target) {
    const ValueId made = e.trace.add_value(e.matrix);
    BoundSymbol operation;
    operation.op = &kExp;
    operation.arguments = {target};
    operation.results = {made};
    BoundSymbol copy;
    copy.op = &kCopy;
    copy.arguments = {target, made, false};
    copy.results = {Argument()};
    e.trace.add(make_block("cuda", kKernel, {target}, {}, {operation, copy}));
  };
  update(e.w);
  const ValueId a = e.mm(e.x, e.x);
  update(e.v);
  e.trace.outputs = {a};
  CHECK((e.sizes() == Sizes{0, 2}));
  CHECK((written_inputs(e.batched().symbols[1]) == std::vector<std::size_t>{0, 1}));
  e.trace.symbols.clear();
  update(e.w);
  e.trace.outputs = {e.mm(e.w, e.x)};
  update(e.v);
  CHECK((e.sizes() == Sizes{0, 0, 0}));
}

TEST(members_read_and_give_their_part_of_a_batch) {
  Example e;
  e.trace.outputs = {e.kernel(e.w), e.kernel(e.x), e.kernel(e.w)};
  const Trace batched = e.batched();
  const std::vector<BatchMember> members = members_of(batched.symbols[0]);
  CHECK_EQ(members.size(), std::size_t{3});
  CHECK((members[1].inputs == std::vector<std::size_t>{1}));
  CHECK((members[2].inputs == std::vector<std::size_t>{0}));
}

}  // namespace thunder::fusion
