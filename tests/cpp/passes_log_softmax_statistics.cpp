#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/log_softmax_statistics.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kLogSoftmax = add_row("aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor");
const Operator& kCast = add_row("aten::_to_copy(Tensor self, *, ScalarType? dtype=None) -> Tensor");
const Operator& kLargest = add_row("aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor");
const Operator& kSubtract = add_row("aten::sub.Tensor(Tensor self, Tensor other) -> Tensor");
const Operator& kAdd = add_row("aten::add.Tensor(Tensor self, Tensor other) -> Tensor");
const Operator& kFill = add_row("aten::fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)");

/// A log-softmax of rows, of which a forward gives one result to its caller and saves others.
struct Example {
  Trace trace{"f", std::make_shared<TraceContext>()};
  ValueId x;
  ValueId y;

  explicit Example(Dtype dtype = Dtype::kFloat32, std::int64_t dim = 1) {
    const TypePtr type = tensor_type(dtype, {4, 8});
    x = trace.add_input(type, "x");
    y = trace.add_value(type);
    add_symbol(trace, kLogSoftmax, {x, dim, false}, {y});
    trace.outputs = {x, y};
  }
  [[nodiscard]] Trace rewritten(DeviceType device = DeviceType::kCpu) const {
    Trace made = save_log_softmax_statistics(trace, device, 1, &find_row);
    verify(made, "test");
    return made;
  }
  [[nodiscard]] bool stays(DeviceType device = DeviceType::kCpu) const {
    return rewritten(device).symbols.size() == trace.symbols.size();
  }
};

}  // namespace

TEST(a_saved_log_softmax_follows_from_two_numbers_of_each_row) {
  CHECK_EQ(print(Example().rewritten(), {.deletions = false}), R"(# f: log_softmax_statistics
import torch

@torch.no_grad()
def f(x):
  # x: "cpu f32[4, 8]"
  t1 = torch.ops.aten._log_softmax.default(x, 1, False)  # t1: "cpu f32[4, 8]"
  t2 = torch.ops.aten.amax.default(x, [1], True)  # t2: "cpu f32[4, 1]"
  t3 = torch.ops.aten.sub.Tensor(x, t2)  # t3: "cpu f32[4, 8]"
  t4 = torch.ops.aten.amax.default(t1, [1], True)  # t4: "cpu f32[4, 1]"
  t5 = torch.ops.aten.add.Tensor(t3, t4)  # t5: "cpu f32[4, 8]"
  return (x, t5)
)");
}

TEST(rows_of_16_bits_are_computed_in_32) {
  CHECK_EQ(print(Example(Dtype::kBfloat16).rewritten(), {.deletions = false}), R"(# f: log_softmax_statistics
import torch

@torch.no_grad()
def f(x):
  # x: "cpu bf16[4, 8]"
  t2 = torch.ops.aten._to_copy.default(x, dtype=torch.float32)  # t2: "cpu f32[4, 8]"
  t3 = torch.ops.aten._log_softmax.default(t2, 1, False)  # t3: "cpu f32[4, 8]"
  t1 = torch.ops.aten._to_copy.default(t3, dtype=torch.bfloat16)  # t1: "cpu bf16[4, 8]"
  t4 = torch.ops.aten.amax.default(t2, [1], True)  # t4: "cpu f32[4, 1]"
  t5 = torch.ops.aten.sub.Tensor(t2, t4)  # t5: "cpu f32[4, 8]"
  t6 = torch.ops.aten.amax.default(t3, [1], True)  # t6: "cpu f32[4, 1]"
  t7 = torch.ops.aten.add.Tensor(t5, t6)  # t7: "cpu f32[4, 8]"
  t8 = torch.ops.aten._to_copy.default(t7, dtype=torch.bfloat16)  # t8: "cpu bf16[4, 8]"
  return (x, t8)
)");
}

TEST(what_is_not_saved_or_the_caller_gets_or_is_written_to_stays) {
  CHECK(Example().stays(DeviceType::kCuda));
  Example unsaved;
  unsaved.trace.outputs = {unsaved.y, unsaved.x};
  CHECK(unsaved.stays());
  Example given;
  given.trace.outputs = {given.y, given.y};
  CHECK(given.stays());
  CHECK(!Example(Dtype::kFloat32, -1).stays());
  CHECK(Example(Dtype::kFloat32, 0).stays());
  Example written;
  add_symbol(written.trace, kFill, {written.x, 0.0}, {written.trace.add_value(tensor_type(Dtype::kFloat32, {4, 8}))});
  CHECK(written.stays());
}

}  // namespace thunder::passes
