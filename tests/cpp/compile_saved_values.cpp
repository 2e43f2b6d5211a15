#include "compile/saved_values.h"

#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"

namespace thunder::compile {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

}  // namespace

TEST(values_that_the_backward_does_not_read_are_not_saved) {
  static const Operator kSin = parse_operator("aten::sin(Tensor self) -> Tensor");
  static const Operator kMul = parse_operator("aten::mul.Tensor(Tensor self, Tensor other) -> Tensor");
  const auto context = std::make_shared<TraceContext>();
  const TypePtr type = tensor_type(Dtype::kFloat32, {4});
  Trace forward("forward", context);
  const ValueId x = forward.add_input(type, "x");
  const ValueId sine = add_call(forward, kSin, {x}, type);
  const ValueId twice = add_call(forward, kSin, {sine}, type);
  forward.outputs = {twice, x, sine, twice};  // the first one is the caller's

  Trace backward("backward", context);
  backward.add_input(type, "unread");
  const ValueId saved = backward.add_input(type, "sine");
  backward.add_input(type, "unread_too");
  const ValueId cotangent = backward.add_input(type, "cotangent");
  backward.outputs = {add_call(backward, kMul, {cotangent, saved}, type)};

  const auto [new_forward, new_backward] = drop_unused_saved_values(forward, backward, 1);
  verify(new_forward, "test");
  CHECK(new_forward.outputs == ArgumentList({twice, sine}));
  CHECK_EQ(print(new_backward), R"(# backward
import torch

@torch.no_grad()
def backward(sine, cotangent):
  # sine: "cpu f32[4]"
  # cotangent: "cpu f32[4]"
  t4 = torch.ops.aten.mul.Tensor(cotangent, sine)  # t4: "cpu f32[4]"
  del cotangent, sine
  return (t4,)
)");
}

}  // namespace thunder::compile
