#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/pass.h"

namespace thunder::passes {

extern const Pass kAlgebraicSimplification;

namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kMul = add_row("aten::mul.Scalar(Tensor self, Scalar other) -> Tensor");
const Operator& kDiv = add_row("aten::div.Tensor(Tensor self, Tensor other) -> Tensor");
const Operator& kDivMode = add_row("aten::div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor");
const Operator& kAdd = add_row("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator& kSub = add_row("aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator& kNeg = add_row("aten::neg(Tensor self) -> Tensor");
const Operator& kZero = add_row("aten::zero_(Tensor(a!) self) -> Tensor(a!)");
const Operator& kPow = add_row("aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor");
const Operator& kWhere = add_row("aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor");

struct Example {
  Trace trace{"computation", std::make_shared<TraceContext>()};
  TypePtr type = tensor_type(Dtype::kFloat32, {4});
  ValueId x = trace.add_input(type, "x");

  ValueId call(const Operator& op, ArgumentList arguments, TypePtr of = nullptr) {
    return add_call(trace, op, std::move(arguments), of == nullptr ? type : of);
  }
  /// Whether who reads `result` reads `x` in its place.
  bool gives_x(ValueId result) {
    trace.outputs = {call(kNeg, {result}, trace.value(result).type)};
    const Trace simple = kAlgebraicSimplification.run(trace, &find_row);
    verify(simple, "test");
    return simple.symbols.back().arguments[0] == Argument(x);
  }
};

}  // namespace

TEST(what_changes_nothing_goes) {
  Example e;
  const ValueId one = e.call(kMul, {e.x, 1});
  const ValueId same = e.call(kPow, {e.call(kNeg, {e.call(kNeg, {one})}), 1});
  e.trace.outputs = {e.call(kAdd, {same, e.x})};
  const Trace result = kAlgebraicSimplification.run(e.trace, &find_row);
  verify(result, "test");
  CHECK_EQ(print(result), R"(# computation: algebraic_simplification
import torch

@torch.no_grad()
def computation(x):
  # x: "cpu f32[4]"
  t2 = torch.ops.aten.neg.default(x)  # t2: "cpu f32[4]"
  del t2
  t5 = torch.ops.aten.add.Tensor(x, x)  # t5: "cpu f32[4]"
  del x
  return (t5,)
)");
}

TEST(each_rule_gives_its_argument) {
  Example mul, div, sub, where;
  CHECK(mul.gives_x(mul.call(kMul, {mul.x, 1.0})));
  CHECK(div.gives_x(div.call(kDiv, {div.x, 1})));
  CHECK(sub.gives_x(sub.call(kSub, {sub.x, 0})));
  const ValueId condition = where.trace.add_input(tensor_type(Dtype::kBool, {4}), "condition");
  CHECK(where.gives_x(where.call(kWhere, {condition, where.x, where.x})));
}

TEST(what_changes_a_bit_stays) {
  Example plus_zero, minus_negative_zero, times_true, rounded, scaled;
  CHECK(!plus_zero.gives_x(plus_zero.call(kAdd, {plus_zero.x, 0})));
  CHECK(!minus_negative_zero.gives_x(minus_negative_zero.call(kSub, {minus_negative_zero.x, -0.0})));
  CHECK(!times_true.gives_x(times_true.call(kMul, {times_true.x, true})));
  CHECK(!rounded.gives_x(rounded.call(kDivMode, {rounded.x, 1, std::string("floor")})));
  CHECK(!scaled.gives_x(scaled.call(kSub, {scaled.x, 0, std::numeric_limits<double>::infinity()})));
}

TEST(a_result_of_another_dtype_or_shape_stays) {
  Example promoted, broadcast;
  CHECK(!promoted.gives_x(promoted.call(kMul, {promoted.x, 1}, tensor_type(Dtype::kFloat64, {4}))));
  const TypePtr larger = tensor_type(Dtype::kFloat32, {2, 4});
  const ValueId condition = broadcast.trace.add_input(tensor_type(Dtype::kBool, {2, 4}), "condition");
  CHECK(!broadcast.gives_x(broadcast.call(kWhere, {condition, broadcast.x, broadcast.x}, larger)));
}

TEST(complex_numbers_are_left_alone) {
  Trace trace("computation", std::make_shared<TraceContext>());
  const TypePtr type = tensor_type(Dtype::kComplex64, {4});
  const ValueId x = trace.add_input(type, "x");
  trace.outputs = {add_call(trace, kMul, {x, 1}, type)};
  CHECK(kAlgebraicSimplification.run(trace, &find_row).outputs == trace.outputs);
}

TEST(the_caller_gets_memory_of_its_own) {
  Example e;
  e.trace.outputs = {e.call(kMul, {e.x, 1})};
  CHECK(kAlgebraicSimplification.run(e.trace, &find_row).outputs == e.trace.outputs);
}

TEST(a_value_from_before_a_write_is_not_read_after_it) {
  Example e;
  const ValueId own = e.call(kMul, {e.x, 2});
  const ValueId negative = e.call(kNeg, {own});
  add_symbol(e.trace, kZero, {own}, {e.trace.add_value(e.type)});
  const ValueId twice = e.call(kNeg, {negative});
  e.trace.outputs = {twice};
  CHECK(kAlgebraicSimplification.run(e.trace, &find_row).outputs[0] == Argument(twice));
}

}  // namespace thunder::passes
