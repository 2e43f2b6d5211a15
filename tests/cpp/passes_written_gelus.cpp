#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/dead_code_elimination.h"
#include "passes/written_gelus.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kMul = add_row("aten::mul.Tensor(Tensor self, Tensor other) -> Tensor");
const Operator& kAdd = add_row("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator& kPow = add_row("aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor");
const Operator& kTanh = add_row("aten::tanh(Tensor self) -> Tensor");
const Operator& kGelu = add_row("aten::gelu(Tensor self, *, str approximate='none') -> Tensor");
const Operator& kTo = add_row("aten::to.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)");

struct Numbers {
  double half = 0.5;
  double factor = 0.7978845608028654;
  double cube = 0.044715;
  double exponent = 3;
  double one = 1;
};

/// The formula of an input of bfloat16, whose power is taken in float32 where autocast is on.
Trace written(bool autocast, const Numbers& numbers = {}, bool turned = false) {
  Trace trace{"f", std::make_shared<TraceContext>()};
  const TypePtr narrow = tensor_type(Dtype::kBfloat16, {4, 8});
  const TypePtr wide = autocast ? tensor_type(Dtype::kFloat32, {4, 8}) : narrow;
  const ValueId x = trace.add_input(narrow, "x");
  const ValueId half = add_call(trace, kMul, {x, numbers.half}, narrow);
  const ValueId base = autocast ? add_call(trace, kTo, {x, Dtype::kFloat32}, wide) : x;
  const ValueId cube =
      add_call(trace, kMul, {add_call(trace, kPow, {base, numbers.exponent}, wide), numbers.cube}, wide);
  const ValueId sum = turned ? add_call(trace, kAdd, {cube, x}, wide) : add_call(trace, kAdd, {x, cube}, wide);
  const ValueId tail = add_call(trace, kTanh, {add_call(trace, kMul, {sum, numbers.factor}, wide)}, wide);
  const ValueId more = add_call(trace, kAdd, {tail, numbers.one}, wide);
  trace.outputs = {turned ? add_call(trace, kMul, {more, half}, wide) : add_call(trace, kMul, {half, more}, wide)};
  return trace;
}

Trace recognized(const Trace& trace) {
  Trace made = kDeadCodeElimination.run(recognize_gelus(trace, &find_row), &find_row);
  verify(made, "test");
  return made;
}

bool is_left(const Trace& trace) { return recognized(trace).symbols.size() == trace.symbols.size(); }

}  // namespace

TEST(a_formula_becomes_the_operator) {
  static_cast<void>(kGelu);
  CHECK_EQ(print(recognized(written(true)), {.deletions = false}), R"(# f: written_gelus; dead_code_elimination
import torch

@torch.no_grad()
def f(x):
  # x: "cpu bf16[4, 8]"
  t2 = torch.ops.aten.to.dtype(x, torch.float32)  # t2: "cpu f32[4, 8]"
  t9 = torch.ops.aten.gelu.default(t2, approximate="tanh")  # t9: "cpu f32[4, 8]"
  return (t9,)
)");
  CHECK_EQ(recognized(written(false)).symbols.size(), std::size_t{1});
  CHECK_EQ(recognized(written(false, {}, true)).symbols.size(), std::size_t{1});
}

TEST(other_numbers_are_other_functions) {
  CHECK(is_left(written(false, {.half = 0.25})));
  CHECK(is_left(written(false, {.factor = 0.8})));
  CHECK(is_left(written(false, {.cube = 0.0447})));
  CHECK(is_left(written(false, {.exponent = 2})));
  CHECK(is_left(written(true, {.one = 2})));
}

}  // namespace thunder::passes
