#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/pass.h"

namespace thunder::passes {

extern const Pass kSliceGradients;

namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kSliceBackward = add_row(
    "aten::slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, SymInt end, SymInt step) -> "
    "Tensor");
[[maybe_unused]] const Operator& kUnsqueeze = add_row("aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)");
const Operator& kPad = add_row("aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor");
[[maybe_unused]] const Operator& kReshape = add_row("aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)");

bool is_pad(const BoundSymbol& symbol) { return symbol.op->name == kPad.name; }

struct Example {
  Trace trace{"backward", std::make_shared<TraceContext>()};

  ValueId input(Dims sizes) { return trace.add_input(tensor_type(Dtype::kFloat32, std::move(sizes)), "gradient"); }
  ValueId slice_backward(ValueId gradient, const std::vector<std::int64_t>& sizes, std::int64_t dim, std::int64_t start,
                         std::int64_t step) {
    ArgumentList list;
    for (const std::int64_t size : sizes) list.emplace_back(size);
    const std::int64_t end = std::numeric_limits<std::int64_t>::max();
    return add_call(trace, kSliceBackward, {gradient, Argument(list), dim, start, end, step},
                    tensor_type(Dtype::kFloat32, Dims(sizes.begin(), sizes.end())));
  }
  [[nodiscard]] Trace rewritten() const {
    Trace result = kSliceGradients.run(trace, &find_row);
    verify(result, "test");
    return result;
  }
  [[nodiscard]] bool is_left_alone() const {
    const Trace result = rewritten();
    return std::ranges::none_of(result.symbols, [](const auto& symbol) { return is_pad(symbol); });
  }
};

}  // namespace

TEST(every_second_row_is_a_column_of_pairs) {
  Example e;
  e.trace.outputs = {e.slice_backward(e.input({3, 16}), {8, 16}, 0, 3, 2)};
  CHECK_EQ(print(e.rewritten()), R"(# backward: slice_gradients
import torch

@torch.no_grad()
def backward(gradient):
  # gradient: "cpu f32[3, 16]"
  t2 = torch.ops.aten.unsqueeze.default(gradient, 1)  # t2: "cpu f32[3, 1, 16]"
  del gradient
  t3 = torch.ops.aten.constant_pad_nd.default(t2, [0, 0, 1, 0, 1, 0])  # t3: "cpu f32[4, 2, 16]"
  del t2
  t1 = torch.ops.aten.reshape.default(t3, [8, 16])  # t1: "cpu f32[8, 16]"
  del t3
  return (t1,)
)");
}

TEST(slices_of_slices_are_padded_at_once) {
  Example e;
  const ValueId inner = e.slice_backward(e.input({2, 3, 4, 32}), {2, 3, 8, 32}, 2, 0, 2);
  e.trace.outputs = {e.slice_backward(inner, {2, 6, 8, 32}, 1, 1, 2)};
  CHECK_EQ(print(e.rewritten()), R"(# backward: slice_gradients
import torch

@torch.no_grad()
def backward(gradient):
  # gradient: "cpu f32[2, 3, 4, 32]"
  t3 = torch.ops.aten.unsqueeze.default(gradient, 3)  # t3: "cpu f32[2, 3, 4, 1, 32]"
  del gradient
  t4 = torch.ops.aten.unsqueeze.default(t3, 2)  # t4: "cpu f32[2, 3, 1, 4, 1, 32]"
  del t3
  t5 = torch.ops.aten.constant_pad_nd.default(t4, [0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0])  # t5: "cpu f32[2, 3, 2, 4, 2, 32]"
  del t4
  t2 = torch.ops.aten.reshape.default(t5, [2, 6, 8, 32])  # t2: "cpu f32[2, 6, 8, 32]"
  del t5
  return (t2,)
)");
}

TEST(slices_of_slices_that_others_read_stay_apart) {
  Example e;
  const ValueId inner = e.slice_backward(e.input({3, 4, 32}), {3, 8, 32}, 1, 0, 2);
  e.trace.outputs = {e.slice_backward(inner, {6, 8, 32}, 0, 1, 2), inner};
  const Trace result = e.rewritten();
  CHECK_EQ(std::ranges::count_if(result.symbols, &is_pad), 2);
}

TEST(slices_that_are_left_alone) {
  const auto is_left = [](const std::vector<std::int64_t>& sizes, std::int64_t count, std::int64_t step) {
    Example e;
    Dims of_gradient(sizes.begin(), sizes.end());
    of_gradient[0] = count;
    e.trace.outputs = {e.slice_backward(e.input(of_gradient), sizes, 0, 0, step)};
    return e.is_left_alone();
  };
  CHECK(!is_left({8, 16}, 4, 2));
  CHECK(is_left({8, 16}, 8, 1));  // fuses as it is
  CHECK(is_left({9, 16}, 5, 2));  // the step does not divide
  CHECK(is_left({8, 8}, 4, 2));   // rows are short
  CHECK(is_left({8}, 4, 2));      // as are those of one number
}

}  // namespace thunder::passes
