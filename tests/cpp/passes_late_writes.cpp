#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/pass.h"

namespace thunder::passes {

extern const Pass kLateWrites;

namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kExp = add_row("aten::exp(Tensor self) -> Tensor");
const Operator& kCopy = add_row("aten::copy_(Tensor(a!) self, Tensor src) -> Tensor(a!)");

struct Example {
  Trace trace{"f", std::make_shared<TraceContext>()};
  TypePtr type = tensor_type(Dtype::kFloat32, {8});
  ValueId x = trace.add_input(type, "x");
  ValueId y = trace.add_input(type, "y");

  ValueId exp(ValueId a) { return add_call(trace, kExp, {a}, type); }
  void copy(ValueId to, ValueId from) { add_symbol(trace, kCopy, {to, from}, {Argument(None{})}); }
  [[nodiscard]] Trace rewritten() const {
    Trace result = kLateWrites.run(trace, &find_row);
    verify(result, "test");
    return result;
  }
  /// The first copy stands where it stood.
  [[nodiscard]] bool stays(std::size_t position) const { return rewritten().symbols[position].op == &kCopy; }
};

}  // namespace

TEST(a_write_that_nobody_sees_comes_last) {
  Example e;
  const ValueId a = e.exp(e.x);
  e.copy(e.y, a);
  e.trace.outputs = {e.exp(a)};
  CHECK_EQ(print(e.rewritten()), R"(# f: late_writes
import torch

@torch.no_grad()
def f(x, y):
  # x: "cpu f32[8]"
  # y: "cpu f32[8]"
  t2 = torch.ops.aten.exp.default(x)  # t2: "cpu f32[8]"
  del x
  t3 = torch.ops.aten.exp.default(t2)  # t3: "cpu f32[8]"
  torch.ops.aten.copy_.default(y, t2)
  del y, t2
  return (t3,)
)");
}

TEST(what_is_read_afterwards_is_written_before) {
  Example e;
  e.copy(e.y, e.exp(e.x));
  e.trace.outputs = {e.exp(e.y)};
  CHECK(e.stays(1));
}

TEST(what_is_overwritten_afterwards_is_copied_before) {
  Example e;
  const ValueId a = e.exp(e.x);
  e.copy(e.y, a);
  add_call(e.trace, kCopy, {a, e.x}, e.type);
  e.trace.outputs = {e.exp(a)};
  CHECK(e.stays(1));
}

TEST(copies_keep_their_order) {
  Example e;
  e.copy(e.y, e.exp(e.x));
  e.copy(e.x, e.y);
  const Trace result = e.rewritten();
  CHECK(result.symbols[1].arguments[0] == Argument(e.y));
  CHECK(result.symbols[2].arguments[0] == Argument(e.x));
}

}  // namespace thunder::passes
