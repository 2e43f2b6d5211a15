#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/constant_folding.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& add_constant_row() {
  Operator& op = operator_rows().emplace_back(
      parse_operator("prims::tensor_constant(Tensor value) -> Tensor", CallStyle::kPrimitive));
  return op;
}

const Operator& kConstant = add_constant_row();
const Operator& kArange = add_row("aten::arange(Scalar end) -> Tensor");
const Operator& kAdd = add_row("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator& kNeg = add_row("aten::neg(Tensor self) -> Tensor");
const Operator& kZero = add_row("aten::zero_(Tensor(a!) self) -> Tensor(a!)");
const Operator& kRand = add_row("aten::rand_like(Tensor self) -> Tensor", /*random=*/true);
const Operator& kCustom = add_row("mine::neg(Tensor self) -> Tensor");
const Operator& kUnbind = add_row("aten::unbind.int(Tensor(a->*) self, int dim=0) -> Tensor(a)[]");

struct Example {
  Trace trace{"computation", std::make_shared<TraceContext>()};
  TypePtr type = tensor_type(Dtype::kFloat32, {4});
  ValueId x = trace.add_input(type, "x");
  std::size_t evaluated = 0;  ///< values that were computed once and kept

  ValueId call(const Operator& op, ArgumentList arguments, TypePtr of = nullptr) {
    return add_call(trace, op, std::move(arguments), of == nullptr ? type : of);
  }
  ValueId constant(TypePtr of = nullptr) {
    return call(kConstant,
                {trace.context()->add_object({ObjectKind::kTensor, std::make_shared<int>(), "torch.Tensor"})}, of);
  }
  Trace fold() {
    const auto run = [&](const Trace& part) {
      verify(part, "test");
      std::vector<ObjectConstant> objects;
      for (std::size_t i = 0; i < part.outputs.size(); ++i) {
        objects.push_back(trace.context()->add_object({ObjectKind::kTensor, std::make_shared<int>(), "torch.Tensor"}));
      }
      evaluated += objects.size();
      return objects;
    };
    Trace result = fold_constants(trace, run, &find_row);
    verify(result, "test");
    return result;
  }
};

}  // namespace

TEST(what_follows_from_constants_is_computed_once) {
  Example e;
  const ValueId sum = e.call(kAdd, {e.constant(), e.call(kArange, {4})});
  const ValueId negative = e.call(kNeg, {sum});
  e.trace.outputs = {e.call(kAdd, {e.x, negative})};
  CHECK_EQ(print(e.fold()), R"(# computation: constant_folding
import torch
from thunder import prims

# object0: torch.Tensor
# object1: torch.Tensor

@torch.no_grad()
def computation(x):
  # x: "cpu f32[4]"
  t1 = prims.tensor_constant(object0)  # t1: "cpu f32[4]"
  del t1
  t2 = torch.ops.aten.arange.default(4)  # t2: "cpu f32[4]"
  del t2
  t4 = prims.tensor_constant(object1)  # t4: "cpu f32[4]"  # folded: aten::neg
  t5 = torch.ops.aten.add.Tensor(x, t4)  # t5: "cpu f32[4]"
  del x, t4
  return (t5,)
)");
  CHECK_EQ(e.evaluated, 1U);
}

TEST(what_the_caller_gets_is_its_own) {
  Example e;
  e.trace.outputs = {e.call(kNeg, {e.constant()})};
  CHECK(e.fold().outputs == e.trace.outputs);
  CHECK_EQ(e.evaluated, 0U);
}

TEST(what_is_written_to_is_made_at_each_call) {
  Example e;
  const ValueId buffer = e.call(kNeg, {e.constant()});
  add_symbol(e.trace, kZero, {buffer}, {e.trace.add_value(e.type)});
  e.trace.outputs = {e.call(kAdd, {e.x, buffer})};
  CHECK_EQ(e.fold().symbols.size(), e.trace.symbols.size());
  CHECK_EQ(e.evaluated, 0U);
}

TEST(random_and_custom_operators_and_large_values_stay) {
  Example e;
  const ValueId noise = e.call(kRand, {e.constant()});
  const ValueId custom = e.call(kCustom, {e.constant()});
  const TypePtr large = tensor_type(Dtype::kFloat32, {kFoldedBytes});
  const ValueId negative = e.call(kNeg, {e.constant(large)}, large);
  e.trace.outputs = {e.call(kAdd, {noise, e.x}), e.call(kAdd, {custom, e.x}), e.call(kAdd, {negative, e.x}, large)};
  e.fold();
  CHECK_EQ(e.evaluated, 0U);
}

TEST(each_result_that_is_read_becomes_a_constant) {
  Example e;
  const TypePtr row = tensor_type(Dtype::kFloat32, {});
  const ValueId first = e.trace.add_value(row);
  const ValueId second = e.trace.add_value(row);
  add_symbol(e.trace, kUnbind, {e.constant(tensor_type(Dtype::kFloat32, {2}))}, {ArgumentList{first, second}});
  e.trace.outputs = {e.call(kAdd, {e.x, second})};
  const Trace result = e.fold();
  CHECK_EQ(e.evaluated, 1U);
  CHECK(result.symbols[1].op == &kConstant);
  CHECK(result.symbols[1].results[0] == Argument(second));
}

}  // namespace thunder::passes
