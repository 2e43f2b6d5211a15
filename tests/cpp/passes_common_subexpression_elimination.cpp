#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "passes/common_subexpression_elimination.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator kAdd = parse_operator("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator kMul = parse_operator("aten::mul.Tensor(Tensor self, Tensor other) -> Tensor");
const Operator kScale = parse_operator("aten::mul.Scalar(Tensor self, Scalar other) -> Tensor");
const Operator kView = parse_operator("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)");
const Operator kZero = parse_operator("aten::zero_(Tensor(a!) self) -> Tensor(a!)");
const Operator kRand = [] {
  Operator op = parse_operator("aten::rand_like(Tensor self) -> Tensor");
  op.random = true;
  return op;
}();

struct Example {
  Trace trace{"computation", std::make_shared<TraceContext>()};
  TypePtr type = tensor_type(Dtype::kFloat32, {4});
  ValueId x = trace.add_input(type, "x");
  ValueId y = trace.add_input(type, "y");

  ValueId add(ValueId a, ValueId b) { return add_call(trace, kAdd, {a, b}, type); }
  ValueId mul(ValueId a, ValueId b) { return add_call(trace, kMul, {a, b}, type); }
  ValueId view(ValueId a) { return add_call(trace, kView, {a, ArgumentList{4}}, type); }
  void zero(ValueId a) { add_symbol(trace, kZero, {a}, {trace.add_value(type)}); }

  /// Symbols that the pass merged away.
  [[nodiscard]] std::size_t merged() const {
    const Trace result = eliminate_common_subexpressions(trace);
    verify(result, "test");
    return trace.symbols.size() - result.symbols.size();
  }
};

}  // namespace

TEST(equal_expressions_are_computed_once) {
  Example e;
  const ValueId a = e.add(e.view(e.x), e.y);
  const ValueId b = e.add(e.view(e.x), e.y);
  e.trace.outputs = {e.mul(a, b)};
  const Trace result = eliminate_common_subexpressions(e.trace);
  verify(result, "test");
  CHECK_EQ(print(result), R"(# computation: common_subexpression_elimination
import torch

@torch.no_grad()
def computation(x, y):
  # x: "cpu f32[4]"
  # y: "cpu f32[4]"
  t2 = torch.ops.aten.view.default(x, [4])  # t2: "cpu f32[4]"
  del x
  t3 = torch.ops.aten.add.Tensor(t2, y)  # t3: "cpu f32[4]"
  del t2, y
  t6 = torch.ops.aten.mul.Tensor(t3, t3)  # t6: "cpu f32[4]"
  del t3
  return (t6,)
)");
}

TEST(constants_of_another_type_or_sign_are_not_equal) {
  Example e;
  const auto scale = [&](Argument factor) { return add_call(e.trace, kScale, {e.x, factor}, e.type); };
  for (const Argument& factor : {Argument(0), Argument(0.0), Argument(-0.0), Argument(false)}) scale(factor);
  CHECK_EQ(e.merged(), 0U);
  scale(-0.0);
  CHECK_EQ(e.merged(), 1U);
}

TEST(random_operators_stay) {
  Example e;
  const ValueId a = add_call(e.trace, kRand, {e.x}, e.type);
  const ValueId b = add_call(e.trace, kRand, {e.x}, e.type);
  e.trace.outputs = {e.mul(a, b)};
  CHECK_EQ(e.merged(), 0U);
}

TEST(a_read_is_not_merged_with_one_before_a_write) {
  Example e;
  const ValueId base = e.mul(e.x, e.x);
  const ValueId before = e.add(base, e.y);
  e.zero(e.view(base));
  const ValueId after = e.add(base, e.y);
  const ValueId again = e.add(base, e.y);
  e.trace.outputs = {e.mul(before, after), e.mul(before, again)};
  CHECK_EQ(e.merged(), 1U);  // `again` is `after`; the products then have one pair of arguments, but are both outputs
}

TEST(a_write_to_an_input_is_a_write_to_all_inputs) {
  Example e;
  const ValueId before = e.add(e.x, e.x);
  e.zero(e.y);
  e.trace.outputs = {e.mul(before, e.add(e.x, e.x))};
  CHECK_EQ(e.merged(), 0U);
}

TEST(an_operator_with_an_effect_may_write_to_its_arguments) {
  static const Operator kBatchNorm = [] {
    Operator op = parse_operator("aten::batch_norm(Tensor input, Tensor? running_mean) -> Tensor");
    op.effect = true;
    return op;
  }();
  Example e;
  const ValueId before = e.add(e.y, e.y);
  const ValueId normalized = add_call(e.trace, kBatchNorm, {e.x, e.y}, e.type);
  e.trace.outputs = {e.mul(before, e.add(e.y, e.y)), normalized};
  CHECK_EQ(e.merged(), 0U);
}

TEST(what_is_written_later_is_memory_of_its_own) {
  Example e;
  const ValueId a = e.add(e.x, e.y);
  const ValueId b = e.add(e.x, e.y);
  e.zero(a);
  e.trace.outputs = {e.mul(a, b)};
  CHECK_EQ(e.merged(), 0U);
}

TEST(two_outputs_do_not_become_one) {
  Example e;
  const ValueId first = e.add(e.x, e.y);
  const ValueId through_a_view = e.view(e.add(e.x, e.y));
  e.trace.outputs = {first, through_a_view};
  CHECK_EQ(e.merged(), 0U);
  e.trace.outputs = {first};
  CHECK_EQ(e.merged(), 1U);
}

TEST(a_value_that_became_an_output_by_merging_counts_as_one) {
  Example e;
  const ValueId inner = e.add(e.x, e.y);
  const ValueId first = e.add(e.x, e.y);
  const ValueId second = e.add(e.x, e.y);
  e.trace.outputs = {first, second, e.mul(inner, inner)};
  CHECK_EQ(e.merged(), 1U);
}

TEST(types_that_differ_keep_expressions_apart) {
  Example e;
  TensorType with_gradient = std::get<TensorType>(*e.type);
  with_gradient.requires_grad = true;
  const ValueId a = e.add(e.x, e.y);
  const ValueId b = add_call(e.trace, kAdd, {e.x, e.y}, make_type(with_gradient));
  e.trace.outputs = {e.mul(a, b)};
  CHECK_EQ(e.merged(), 0U);
}

TEST(a_primitive_is_not_merged_across_an_effect) {
  static const Operator kRead = parse_operator("prims::read(Any module) -> Tensor", CallStyle::kPrimitive);
  static const Operator kWrite = [] {
    Operator op = parse_operator("prims::write(Any module) -> ()", CallStyle::kPrimitive);
    op.effect = true;
    return op;
  }();
  Example e;
  const auto read = [&] { return add_call(e.trace, kRead, {e.x}, e.type); };
  const ValueId first = e.add(read(), read());
  add_symbol(e.trace, kWrite, {e.x}, {});
  e.trace.outputs = {e.mul(first, read())};
  CHECK_EQ(e.merged(), 1U);
}

}  // namespace thunder::passes
