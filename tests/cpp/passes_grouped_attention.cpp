#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/dead_code_elimination.h"
#include "passes/grouped_attention.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kAttention = add_row(
    "aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float "
    "dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor");
const Operator& kGrouped = add_row(
    "thunder::grouped_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, "
    "float? scale, int[] strides) -> Tensor");
const Operator& kUnsqueeze = add_row("aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)");
const Operator& kExpand = add_row("aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)");
const Operator& kReshape = add_row("aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)");

TypePtr type(Dims sizes) { return tensor_type(Dtype::kFloat32, std::move(sizes)); }

struct Example {
  Trace trace{"f", std::make_shared<TraceContext>()};
  ValueId query = trace.add_input(type({1, 6, 1, 8}), "query");
  ValueId key = trace.add_input(type({1, 2, 5, 8}), "key");
  ValueId value = trace.add_input(type({1, 2, 5, 8}), "value");

  /// Each head of a group three times, behind the group; `dim`: where the repeats stand.
  ValueId repeated(ValueId heads, std::int64_t dim = 2) {
    const ValueId apart = add_call(trace, kUnsqueeze, {heads, dim}, type({1, 2, 1, 5, 8}));
    ir::TensorType expanded = *trace.tensor_type(apart);
    expanded.sizes[2] = 3;
    expanded.strides[2] = 0;
    const ValueId all =
        add_call(trace, kExpand, {apart, ArgumentList{1, 2, 3, 5, 8}, false}, make_type(std::move(expanded)));
    return add_call(trace, kReshape, {all, ArgumentList{1, 6, 5, 8}}, type({1, 6, 5, 8}));
  }
  void attend(ValueId keys, ValueId values, double dropout = 0.0) {
    trace.outputs = {
        add_call(trace, kAttention, {query, keys, values, None(), dropout, false, 0.5, false}, type({1, 6, 1, 8}))};
  }
  [[nodiscard]] Trace rewritten(DeviceType device = DeviceType::kCpu) const {
    Trace made = group_attention(trace, device, &find_row);
    verify(made, "test");
    return made;
  }
  [[nodiscard]] bool is_grouped(DeviceType device = DeviceType::kCpu) const {
    return rewritten(device).symbols.back().op == &kGrouped;
  }
};

}  // namespace

TEST(attention_reads_keys_and_values_of_groups_as_they_are) {
  Example e;
  e.attend(e.repeated(e.key), e.repeated(e.value));
  CHECK_EQ(print(kDeadCodeElimination.run(e.rewritten(), &find_row), {.deletions = false}),
           R"(# f: grouped_attention; dead_code_elimination
import torch

@torch.no_grad()
def f(query, key, value):
  # query: "cpu f32[1, 6, 1, 8]"
  # key: "cpu f32[1, 2, 5, 8]"
  # value: "cpu f32[1, 2, 5, 8]"
  t9 = torch.ops.thunder.grouped_attention.default(query, key, value, None, False, 0.5, [48, 8, 8, 1])  # t9: "cpu f32[1, 6, 1, 8]"  # keys and values are shared by heads
  return (t9,)
)");
}

TEST(attention_that_drops_or_whose_keys_are_not_shared_stays) {
  Example dropout, elsewhere, one;
  dropout.attend(dropout.repeated(dropout.key), dropout.repeated(dropout.value), 0.1);
  CHECK(!dropout.is_grouped());
  elsewhere.attend(elsewhere.repeated(elsewhere.key), elsewhere.repeated(elsewhere.value));
  CHECK(!elsewhere.is_grouped(DeviceType::kCuda));
  const ValueId value = one.trace.add_input(type({1, 6, 5, 8}), "heads");
  one.attend(one.repeated(one.key), value);
  CHECK(!one.is_grouped());
}

}  // namespace thunder::passes
