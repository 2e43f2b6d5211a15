#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/counted_dropouts.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kDropout =
    add_row("aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)", /*random=*/true);
const Operator& kState =
    add_row("thunder::dropout_state(int[] size, ScalarType dtype, Device device, Tensor? input=None) -> Tensor",
            /*random=*/true);
const Operator& kMask = add_row("thunder::dropout_mask(Tensor state, int[] size, int[] stride, float p) -> Tensor");
const Operator& kScaled =
    add_row("aten::native_dropout_backward(Tensor grad_output, Tensor mask, float scale) -> Tensor");

struct Example {
  Trace trace{"f", std::make_shared<TraceContext>()};
  TypePtr type = tensor_type(Dtype::kFloat32, {4, 8});
  ValueId x = trace.add_input(type, "x");
  ValueId y = trace.add_value(type);
  ValueId mask = trace.add_value(tensor_type(Dtype::kBool, {4, 8}));

  explicit Example(const Argument& p = 0.5, const Argument& train = true) {
    add_symbol(trace, kDropout, {x, p, train}, {y, mask});
    trace.outputs = {y, mask};
  }
  [[nodiscard]] Trace rewritten(DeviceType device = DeviceType::kCpu) const {
    Trace made = count_dropouts(trace, device, &find_row);
    verify(made, "test");
    return made;
  }
};

}  // namespace

TEST(a_dropout_is_a_state_a_mask_and_arithmetic) {
  CHECK_EQ(print(Example().rewritten(), {.deletions = false}), R"(# f: counted_dropouts
import torch

@torch.no_grad()
def f(x):
  # x: "cpu f32[4, 8]"
  dropout_state = torch.ops.thunder.dropout_state.default([4, 8], torch.float32, torch.device("cpu"), x)  # dropout_state: "cpu i64[4]"
  t2 = torch.ops.thunder.dropout_mask.default(dropout_state, [4, 8], [8, 1], 0.5)  # t2: "cpu b8[4, 8]"
  t1 = torch.ops.aten.native_dropout_backward.default(x, t2, 2.0)  # t1: "cpu f32[4, 8]"
  return (t1, t2)
)");
}

TEST(what_drops_nothing_or_lies_elsewhere_stays) {
  CHECK_EQ(Example(0.0).rewritten().symbols.size(), std::size_t{1});
  CHECK_EQ(Example(0.5, false).rewritten().symbols.size(), std::size_t{1});
  CHECK_EQ(Example().rewritten(DeviceType::kCuda).symbols.size(), std::size_t{1});
}

}  // namespace thunder::passes
