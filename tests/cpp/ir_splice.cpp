#include "base/error.h"
#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/splice.h"
#include "ir/substitution.h"
#include "ir/verifier.h"

namespace thunder::ir {
namespace {

const Operator kAdd = parse_operator("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator kRand = parse_operator("aten::rand(int[] size, *, Generator? generator=None) -> Tensor");

TypePtr vector() { return tensor_type(Dtype::kFloat32, {4}); }

/// scale(a, alpha): returns (a + alpha * a, None, alpha)
Trace rule() {
  Trace trace("scale", std::make_shared<TraceContext>());
  const ValueId a = trace.add_input(vector(), "a");
  const ValueId alpha = trace.add_input(make_type(ScalarKind::kInt), "alpha");
  const ValueId noise = trace.add_value(vector(), "noise");
  add_symbol(trace, kRand,
             {ArgumentList{4}, trace.context()->add_object({ObjectKind::kGenerator, nullptr, "generator"})}, {noise});
  trace.symbols.back().location = {trace.context()->intern("rule.py"), 7};
  const ValueId sum = add_call(trace, kAdd, {a, noise, alpha}, vector(), "sum");
  BoundSymbol& symbol = trace.symbols.back();
  symbol.nested = {symbol};
  trace.outputs = {sum, None{}, alpha};
  return trace;
}

}  // namespace

TEST(a_spliced_trace_gets_new_values_and_brings_its_names) {
  Trace into("computation", std::make_shared<TraceContext>());
  into.context()->add_object({ObjectKind::kPythonObject, nullptr, "something"});
  const ValueId x = into.add_input(vector(), "x");
  const ArgumentList once = splice(into, rule(), ArgumentList{x, 3});
  const ArgumentList twice = splice(into, rule(), ArgumentList{once[0], 1});
  into.outputs = {twice[0]};
  CHECK(twice[1].is<None>());
  CHECK(twice[2] == Argument(1));
  verify(into, "splice");
  CHECK_EQ(print(into, {.nested = true}), R"(# computation
import torch

# object1: generator
# object2: generator

@torch.no_grad()
def computation(x):
  # x: "cpu f32[4]"
  # rule.py:7
  noise = torch.ops.aten.rand.default([4], generator=object1)  # noise: "cpu f32[4]"
  sum = torch.ops.aten.add.Tensor(x, noise, alpha=3)  # sum: "cpu f32[4]"
    # sum = torch.ops.aten.add.Tensor(x, noise, alpha=3)  # sum: "cpu f32[4]"
  del x, noise
  noise_1 = torch.ops.aten.rand.default([4], generator=object2)  # noise_1: "cpu f32[4]"
  sum_1 = torch.ops.aten.add.Tensor(sum, noise_1)  # sum_1: "cpu f32[4]"
    # sum_1 = torch.ops.aten.add.Tensor(sum, noise_1)  # sum_1: "cpu f32[4]"
  del sum, noise_1
  return (sum_1,)
)");
}

TEST(a_wrong_number_of_inputs_is_refused) {
  Trace into("computation", std::make_shared<TraceContext>());
  CHECK_THROWS(splice(into, rule(), ArgumentList{1}), InternalError);
}

TEST(a_substitution_reaches_lists_and_may_put_none) {
  Substitution substitution(1);
  substitution.set(ValueId{0}, None{});
  substitution.set(ValueId{5}, ValueId{0});
  Argument argument = ArgumentList{ValueId{5}, ValueId{0}, ValueId{9}};
  substitution.apply(argument);
  CHECK(argument == Argument(ArgumentList{ValueId{0}, None{}, ValueId{9}}));
}

}  // namespace thunder::ir
