#include <algorithm>

#include "check.h"
#include "fusion/assembly.h"
#include "fusion/partition.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"

namespace thunder::fusion {
namespace {

using namespace ir;      // NOLINT(google-build-using-namespace)
using namespace passes;  // NOLINT(google-build-using-namespace)

const Operator& kAdd = add_row("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator& kMul = add_row("aten::mul.Tensor(Tensor self, Tensor other) -> Tensor");
const Operator& kEqual = add_row("aten::eq.Tensor(Tensor self, Tensor other) -> Tensor");
const Operator& kExp = add_row("aten::exp(Tensor self) -> Tensor");
const Operator& kMm = add_row("aten::mm(Tensor self, Tensor mat2) -> Tensor");
const Operator& kView = add_row("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)");
const Operator& kSum = add_row("aten::sum.dim(Tensor self, int dim, bool keepdim) -> Tensor");
const Operator& kSumAround = add_row("aten::sum.around(Tensor self) -> Tensor");  // keeps the middle one of three
const Operator& kSumMiddle = add_row("aten::sum.middle(Tensor self) -> Tensor");  // sums the middle one of three
const Operator& kBernoulli = add_row("aten::bernoulli(Tensor self) -> Tensor", /*random=*/true);
const Operator& kReduce =
    add_row("_c10d_functional::all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor");
const Operator& kWait = add_row("_c10d_functional::wait_tensor(Tensor tensor) -> Tensor");
const Operator& kCopy = add_row("aten::copy_(Tensor(a!) self, Tensor src) -> Tensor(a!)");

FusionRole role(const BoundSymbol& symbol, const Trace& trace) {
  using Result = FusionRole::Result;
  const auto result = std::get<ValueId>(symbol.results[0].content);
  if (symbol.op == &kAdd || symbol.op == &kMul || symbol.op == &kExp || symbol.op == &kEqual) {
    return {FusionRole::Kind::kWork, result, 0, {Result::kElements}, 0, 1};
  }
  if (symbol.op == &kView) return {FusionRole::Kind::kView, result, 0, {Result::kElements}, 0, 0};
  if (symbol.op != &kSum && symbol.op != &kSumAround && symbol.op != &kSumMiddle) return {};
  const auto source = std::get<ValueId>(symbol.arguments[0].content);
  const TensorType& type = *trace.tensor_type(source);
  if (symbol.op == &kSumAround) {
    FusionRole around{FusionRole::Kind::kWork, source, type.sizes[1].hint, {Result::kRows}, 0, 1};
    around.before = type.sizes[0].hint;
    return around;
  }
  if (symbol.op == &kSumMiddle) {
    const std::int64_t rows = type.sizes[0].hint * type.sizes[2].hint;
    FusionRole middle{FusionRole::Kind::kWork, source, rows, {Result::kRows}, 0, 1};
    middle.interleaved = type.sizes[2].hint;
    return middle;
  }
  const bool is_last = symbol.arguments[1] == Argument(static_cast<int>(type.sizes.size()) - 1);
  return {FusionRole::Kind::kWork, source, type.sizes[0].hint, {is_last ? Result::kRows : Result::kEnd}, 0, 1};
}

struct Example {
  Trace trace{"f", std::make_shared<TraceContext>()};
  TypePtr matrix = tensor_type(Dtype::kFloat32, {8, 8});
  TypePtr column = tensor_type(Dtype::kFloat32, {8, 1});
  TypePtr row = tensor_type(Dtype::kFloat32, {8});
  ValueId x = trace.add_input(matrix, "x");
  ValueId y = trace.add_input(matrix, "y");

  ValueId add(ValueId a, ValueId b) { return add_call(trace, kAdd, {a, b}, matrix); }
  ValueId mul(ValueId a, ValueId b) { return add_call(trace, kMul, {a, b}, matrix); }
  ValueId exp(ValueId a) { return add_call(trace, kExp, {a}, trace.value(a).type); }
  ValueId mm(ValueId a, ValueId b) { return add_call(trace, kMm, {a, b}, matrix); }

  [[nodiscard]] std::vector<std::vector<std::size_t>> groups() const {
    std::vector<std::vector<std::size_t>> positions;
    for (const FusionGroup& group : partition(trace, SymbolOrder(trace), FusionModel{.role = &role}))
      positions.push_back(group.symbols);
    return positions;
  }
};

using Groups = std::vector<std::vector<std::size_t>>;

}  // namespace

TEST(what_follows_from_one_another_becomes_one) {
  Example e;
  const ValueId a = e.mul(e.x, e.y);
  const ValueId b = e.exp(a);
  e.trace.outputs = {e.add(b, e.x), a};
  const FusionModel model{.role = &role};
  const Trace fused = fuse(e.trace, model, "cpu", [](const BoundSymbol& symbol, const Trace&) {
    return std::to_string(symbol.nested.size()) + " operations";
  });
  verify(fused, "test");
  CHECK_EQ(print(fused), R"(# f: fusion_partition
import torch
from thunder import prims

@torch.no_grad()
def f(x, y):
  # x: "cpu f32[8, 8]"
  # y: "cpu f32[8, 8]"
  with prims.fused("cpu", [x, y]):  # 3 operations
    t2 = torch.ops.aten.mul.Tensor(x, y)  # t2: "cpu f32[8, 8]"
    t3 = torch.ops.aten.exp.default(t2)  # t3: "cpu f32[8, 8]"
    t4 = torch.ops.aten.add.Tensor(t3, x)  # t4: "cpu f32[8, 8]"
  del x, y
  return (t4, t2)
)");
}

TEST(a_way_through_something_else_keeps_groups_apart) {
  Example e;
  const ValueId a = e.exp(e.x);
  const ValueId b = e.exp(a);
  const ValueId outside = e.mm(b, e.y);
  const ValueId c = e.exp(outside);
  e.trace.outputs = {e.add(c, a)};
  CHECK((e.groups() == Groups{{0, 1}, {3, 4}}));
}

TEST(rows_that_a_reduction_gives_meet_the_elements_of_their_rows) {
  Example e;
  const ValueId sum = add_call(e.trace, kSum, {e.x, 1, true}, e.column);
  const ValueId scale = add_call(e.trace, kExp, {sum}, e.column);
  e.trace.outputs = {e.mul(e.x, scale)};
  CHECK((e.groups() == Groups{{0, 1, 2}}));
}

TEST(rows_in_the_middle_meet_the_elements_of_their_rows_only) {
  for (const bool in_the_middle : {true, false}) {
    Trace trace("f", std::make_shared<TraceContext>());
    const TypePtr images = tensor_type(Dtype::kFloat32, {4, 4, 4});
    const TypePtr kept =
        in_the_middle ? tensor_type(Dtype::kFloat32, {1, 4, 1}) : tensor_type(Dtype::kFloat32, {4, 1, 1});
    const ValueId x = trace.add_input(images, "x");
    const ValueId sum = add_call(trace, kSumAround, {x}, kept);
    trace.outputs = {add_call(trace, kMul, {add_call(trace, kExp, {x}, images), sum}, images)};
    const std::vector<FusionGroup> groups = partition(trace, SymbolOrder(trace), FusionModel{.role = &role});
    CHECK_EQ(groups.size(), std::size_t{1});
    CHECK_EQ(groups[0].symbols.size(), std::size_t{in_the_middle ? 3U : 2U});
    CHECK_EQ(groups[0].space.before, std::int64_t{groups[0].space.rows == 0 ? 1 : 4});
  }
}

TEST(rows_without_the_dimension_that_was_reduced_are_no_columns) {
  Example e;
  const ValueId sum = add_call(e.trace, kSum, {e.x, 1, false}, e.row);
  const ValueId scale = add_call(e.trace, kExp, {sum}, e.row);
  const ValueId other = e.exp(e.x);  // broadcasts the rows along the other dimension
  e.trace.outputs = {e.mul(other, scale)};
  for (const auto& group : e.groups()) CHECK(!(std::ranges::find(group, 1) != group.end() && group.back() == 3));
}

TEST(rows_interleaved_meet_the_elements_again) {
  Example e;
  const TypePtr whole = tensor_type(Dtype::kFloat32, {4, 8, 16});
  const ValueId x = e.trace.add_input(whole, "whole");
  const ValueId a = add_call(e.trace, kExp, {x}, whole);
  const ValueId sum = add_call(e.trace, kSumMiddle, {a}, tensor_type(Dtype::kFloat32, {4, 1, 16}));
  const ValueId scale = add_call(e.trace, kExp, {sum}, tensor_type(Dtype::kFloat32, {4, 1, 16}));
  const ValueId other = add_call(e.trace, kExp, {scale}, tensor_type(Dtype::kFloat32, {4, 1, 16}));
  e.trace.outputs = {add_call(e.trace, kMul, {a, other}, whole)};
  CHECK((e.groups() == Groups{{0, 1, 2, 3, 4}}));
}

TEST(column_sums_are_known_at_the_end) {
  Example e;
  const ValueId a = e.exp(e.x);
  const ValueId sum = add_call(e.trace, kSum, {a, 0, true}, tensor_type(Dtype::kFloat32, {1, 8}));
  e.trace.outputs = {a, e.mul(e.y, sum), e.exp(e.y)};
  const Groups groups = e.groups();
  CHECK((groups.front() == std::vector<std::size_t>{0, 1}));
}

TEST(groups_that_read_the_same_read_it_once) {
  Example e;
  e.trace.outputs = {e.exp(e.x), e.mul(e.x, e.y)};
  CHECK((e.groups() == Groups{{0, 1}}));
}

TEST(nothing_moves_across_a_write_to_the_callers_memory) {
  Example e;
  const ValueId a = e.exp(e.x);
  add_symbol(e.trace, kCopy, {e.y, a}, {Argument(None{})});
  e.trace.outputs = {e.exp(a)};
  CHECK((e.groups() == Groups{}));
}

TEST(random_operations_keep_their_order) {
  Example e;
  const ValueId first = add_call(e.trace, kBernoulli, {e.x}, e.matrix);
  const ValueId a = e.exp(first);
  const ValueId second = add_call(e.trace, kBernoulli, {e.x}, e.matrix);
  e.trace.outputs = {e.mul(e.exp(a), second)};
  const Trace fused =
      fuse(e.trace, FusionModel{.role = &role}, "cpu", [](const BoundSymbol&, const Trace&) { return std::string(); });
  verify(fused, "test");
  CHECK_EQ(fused.symbols.size(), std::size_t{3});
  CHECK(fused.symbols[0].results == ArgumentList{first});
  CHECK(fused.symbols[1].results == ArgumentList{second});
}

TEST(what_the_last_write_gave_is_read_inside) {
  Example e;
  const ValueId memory = e.mm(e.x, e.y);
  const ValueId early = e.exp(memory);
  const ValueId written = add_call(e.trace, kCopy, {memory, e.x}, e.matrix);
  const ValueId late = e.exp(written);
  e.trace.outputs = {e.mul(late, e.y), early};
  CHECK((e.groups() == Groups{{3, 4}}));
}

TEST(a_view_that_others_read_is_made_again_outside) {
  Example e;
  const TypePtr flat = tensor_type(Dtype::kFloat32, {64});
  const ValueId a = e.exp(e.x);
  const ValueId view = add_call(e.trace, kView, {a, ArgumentList{64}}, flat);
  const ValueId b = add_call(e.trace, kExp, {view}, flat);
  e.trace.outputs = {b, view};
  const Trace fused =
      fuse(e.trace, FusionModel{.role = &role}, "cpu", [](const BoundSymbol&, const Trace&) { return std::string(); });
  verify(fused, "test");
  CHECK_EQ(fused.symbols.size(), std::size_t{2});
  CHECK(fused.symbols[1].op == &kView);
  CHECK(fused.symbols[1].results[0] == fused.outputs[1]);
}

TEST(what_is_cheap_is_made_again_where_it_is_read) {
  Example e;
  const ValueId cheap = e.exp(e.x);
  const ValueId first = e.mul(cheap, e.x);
  const ValueId between = e.mm(first, e.y);
  e.trace.outputs = {e.exp(e.mul(between, cheap))};
  const Trace fused =
      fuse(e.trace, FusionModel{.role = &role}, "cpu", [](const BoundSymbol&, const Trace&) { return std::string(); });
  verify(fused, "test");
  CHECK_EQ(fused.symbols.size(), std::size_t{3});
  CHECK(fused.symbols[0].results[0] == Argument(ArgumentList{first}));
  CHECK(fused.symbols[2].arguments[1] == Argument(ArgumentList{between, e.x}));
  CHECK_EQ(fused.symbols[2].nested.size(), std::size_t{3});
}

namespace {

Trace fused(const Example& e) {
  Trace made =
      fuse(e.trace, FusionModel{.role = &role}, "cpu", [](const BoundSymbol&, const Trace&) { return std::string(); });
  verify(made, "test");
  return made;
}

}  // namespace

TEST(a_chain_that_begins_with_fewer_bytes_is_made_again_where_it_is_read) {
  Example e;
  const ValueId narrow = e.trace.add_input(tensor_type(Dtype::kBfloat16, {8, 8}), "narrow");
  const ValueId mean = e.trace.add_input(e.row, "mean");
  const ValueId centered = e.add(add_call(e.trace, kExp, {narrow}, e.matrix), mean);
  const ValueId sum = add_call(e.trace, kSum, {centered, 0, true}, e.row);
  e.trace.outputs = {e.mul(e.mul(centered, sum), e.x), sum};
  const Trace made = fused(e);
  CHECK_EQ(made.symbols.size(), std::size_t{2});
  CHECK(made.symbols[0].results[0] == Argument(ArgumentList{sum}));
  CHECK(made.symbols[1].arguments[1] == Argument(ArgumentList{narrow, mean, sum, e.x}));
  CHECK_EQ(made.symbols[1].nested.size(), std::size_t{4});
}

TEST(a_chain_is_made_again_from_what_is_written_anyway) {
  Example e;
  const TypePtr half = tensor_type(Dtype::kBfloat16, {8, 8});
  const ValueId narrow = add_call(e.trace, kMul, {e.x, e.y}, half);
  const ValueId wide = add_call(e.trace, kExp, {narrow}, e.matrix);
  const ValueId sum = add_call(e.trace, kSum, {wide, 0, true}, e.row);
  e.trace.outputs = {e.exp(e.mul(wide, sum)), narrow};
  const Trace made = fused(e);
  CHECK(made.symbols[0].results[0] == Argument(ArgumentList{narrow, sum}));
  CHECK(made.symbols[1].arguments[1] == Argument(ArgumentList{narrow, sum}));
}

TEST(a_chain_that_begins_with_more_bytes_is_written) {
  Example e;
  const ValueId z = e.trace.add_input(e.matrix, "z");
  const ValueId all = e.mul(e.mul(e.x, e.y), z);
  const ValueId sum = add_call(e.trace, kSum, {all, 0, true}, e.row);
  e.trace.outputs = {e.exp(e.mul(all, sum))};
  const Trace made = fused(e);
  CHECK(made.symbols[0].results[0] == Argument(ArgumentList{all, sum}));
  CHECK(made.symbols[1].arguments[1] == Argument(ArgumentList{all, sum}));
}

TEST(what_is_compared_is_not_made_again) {
  Example e;
  const ValueId cheap = e.exp(e.x);
  const ValueId sum = add_call(e.trace, kSum, {cheap, 0, true}, e.row);
  e.trace.outputs = {e.exp(add_call(e.trace, kEqual, {cheap, sum}, e.matrix))};
  const Trace made = fused(e);
  CHECK_EQ(made.symbols.size(), std::size_t{2});
  CHECK(made.symbols[0].results[0] == Argument(ArgumentList{cheap, sum}));
}

TEST(nothing_fuses_across_the_start_of_a_collective_or_its_wait) {
  Example e;
  const ValueId before = e.exp(e.x);
  const ValueId started = add_call(e.trace, kReduce, {e.y, "sum", "0"}, e.matrix);
  const ValueId first = e.exp(before);
  const ValueId between = e.mul(first, e.x);
  const ValueId waited = add_call(e.trace, kWait, {started}, e.matrix);
  e.trace.outputs = {e.mul(e.exp(between), waited)};
  CHECK((e.groups() == Groups{{2, 3}, {5, 6}}));
}

TEST(one_operation_alone_stays) {
  Example e;
  e.trace.outputs = {e.exp(e.x)};
  CHECK((e.groups() == Groups{}));
}

}  // namespace thunder::fusion
