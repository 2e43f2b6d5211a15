#include <algorithm>

#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/pass.h"

namespace thunder::passes {

extern const Pass kEmbeddingGradients;

namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kAdd = add_row("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator& kSin = add_row("aten::sin(Tensor self) -> Tensor");
const Operator& kDense = add_row(
    "aten::embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx, bool "
    "scale_grad_by_freq) -> Tensor");
[[maybe_unused]] const Operator& kIndexAdd =
    add_row("aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor");
const Operator& kIndexPut =
    add_row("aten::index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor");
[[maybe_unused]] const Operator& kReshape = add_row("aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)");
[[maybe_unused]] const Operator& kEq = add_row("aten::eq.Scalar(Tensor self, Scalar other) -> Tensor");
[[maybe_unused]] const Operator& kUnsqueeze = add_row("aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)");
[[maybe_unused]] const Operator& kMaskedFill =
    add_row("aten::masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor");

struct Example {
  Trace trace{"backward", std::make_shared<TraceContext>()};
  TypePtr table_type;
  ValueId gradient;
  ValueId indices;
  ValueId projection;

  explicit Example(Dtype dtype = Dtype::kFloat32, std::vector<std::int64_t> tokens = {2, 3}, Device device = {}) {
    const auto sizes = [](const std::vector<std::int64_t>& of) { return Dims(of.begin(), of.end()); };
    table_type = tensor_type(dtype, {16, 4}, device);
    indices = trace.add_input(tensor_type(Dtype::kInt64, sizes(tokens), device), "indices");
    tokens.push_back(4);
    gradient = trace.add_input(tensor_type(dtype, sizes(tokens), device), "gradient");
    projection = trace.add_input(table_type, "projection");
  }
  ValueId dense(std::int64_t padding = -1, bool scale = false) {
    return add_call(trace, kDense, {gradient, indices, 16, padding, scale}, table_type);
  }
  ValueId add(ValueId a, ValueId b, Argument alpha = 1) { return add_call(trace, kAdd, {a, b, alpha}, table_type); }
  [[nodiscard]] Trace rewritten() const {
    Trace result = kEmbeddingGradients.run(trace, &find_row);
    verify(result, "test");
    return result;
  }
  [[nodiscard]] bool is_left_alone() const {
    const Trace result = rewritten();
    return std::ranges::none_of(result.symbols,
                                [](const auto& symbol) { return symbol.op == &kIndexAdd || symbol.op == &kIndexPut; });
  }
};

}  // namespace

TEST(rows_are_added_to_the_other_gradient) {
  Example e;
  const ValueId dense = e.dense();
  e.trace.outputs = {e.add(add_call(e.trace, kSin, {e.projection}, e.table_type), dense)};
  CHECK_EQ(print(e.rewritten()), R"(# backward: embedding_gradients
import torch

@torch.no_grad()
def backward(indices, gradient, projection):
  # indices: "cpu i64[2, 3]"
  # gradient: "cpu f32[2, 3, 4]"
  # projection: "cpu f32[16, 4]"
  t4 = torch.ops.aten.sin.default(projection)  # t4: "cpu f32[16, 4]"
  del projection
  t6 = torch.ops.aten.reshape.default(gradient, [6, 4])  # t6: "cpu f32[6, 4]"
  del gradient
  t7 = torch.ops.aten.reshape.default(indices, [6])  # t7: "cpu i64[6]"
  del indices
  t5 = torch.ops.aten.index_add.default(t4, 0, t7, t6)  # t5: "cpu f32[16, 4]"
  del t4, t7, t6
  return (t5,)
)");
}

TEST(rows_of_padding_are_zero) {
  Example e(Dtype::kFloat64, {6});
  const ValueId dense = e.dense(/*padding=*/2);
  e.trace.outputs = {e.add(dense, e.projection)};
  CHECK_EQ(print(e.rewritten()), R"(# backward: embedding_gradients
import torch

@torch.no_grad()
def backward(indices, gradient, projection):
  # indices: "cpu i64[6]"
  # gradient: "cpu f64[6, 4]"
  # projection: "cpu f64[16, 4]"
  t5 = torch.ops.aten.eq.Scalar(indices, 2)  # t5: "cpu b8[6]"
  t6 = torch.ops.aten.unsqueeze.default(t5, 1)  # t6: "cpu b8[6, 1]"
  del t5
  t7 = torch.ops.aten.masked_fill.Scalar(gradient, t6, 0)  # t7: "cpu f64[6, 4]"
  del gradient, t6
  t4 = torch.ops.aten.index_add.default(projection, 0, indices, t7)  # t4: "cpu f64[16, 4]"
  del projection, indices, t7
  return (t4,)
)");
}

TEST(rows_on_a_gpu_are_added_in_the_order_of_indices) {
  Example e(Dtype::kFloat32, {2, 3}, {DeviceType::kCuda, 0});
  const ValueId dense = e.dense(/*padding=*/2);
  e.trace.outputs = {e.add(e.projection, dense)};
  CHECK_EQ(print(e.rewritten(), {.deletions = false}), R"(# backward: embedding_gradients
import torch

@torch.no_grad()
def backward(indices, gradient, projection):
  # indices: "cuda:0 i64[2, 3]"
  # gradient: "cuda:0 f32[2, 3, 4]"
  # projection: "cuda:0 f32[16, 4]"
  t5 = torch.ops.aten.reshape.default(gradient, [6, 4])  # t5: "cuda:0 f32[6, 4]"
  t6 = torch.ops.aten.reshape.default(indices, [6])  # t6: "cuda:0 i64[6]"
  t7 = torch.ops.aten.eq.Scalar(t6, 2)  # t7: "cuda:0 b8[6]"
  t8 = torch.ops.aten.unsqueeze.default(t7, 1)  # t8: "cuda:0 b8[6, 1]"
  t9 = torch.ops.aten.masked_fill.Scalar(t5, t8, 0)  # t9: "cuda:0 f32[6, 4]"
  t4 = torch.ops.aten.index_put.default(projection, [t6], t9, True)  # t4: "cuda:0 f32[16, 4]"
  return (t4,)
)");
}

TEST(gradient_that_is_read_twice_stays_dense) {
  Example e;
  const ValueId dense = e.dense();
  e.trace.outputs = {e.add(e.projection, dense), dense};
  CHECK(e.is_left_alone());
}

TEST(gradient_scaled_by_frequency_stays_dense) {
  Example e;
  const ValueId dense = e.dense(-1, /*scale=*/true);
  e.trace.outputs = {e.add(e.projection, dense)};
  CHECK(e.is_left_alone());
}

TEST(scaled_sum_stays) {
  Example e;
  const ValueId dense = e.dense();
  e.trace.outputs = {e.add(e.projection, dense, 2)};
  CHECK(e.is_left_alone());
}

TEST(lower_precision_stays_dense) {
  Example e(Dtype::kBfloat16);
  const ValueId dense = e.dense();
  e.trace.outputs = {e.add(e.projection, dense)};
  CHECK(e.is_left_alone());
}

}  // namespace thunder::passes
