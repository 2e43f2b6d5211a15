#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/dead_code_elimination.h"
#include "passes/merged_linears.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kLinear = add_row("aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor");
const Operator& kTo = add_row("aten::to.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)");
const Operator& kCat = add_row("aten::cat(Tensor[] tensors, int dim=0) -> Tensor");
const Operator& kSplit =
    add_row("aten::split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]");
const Operator& kView = add_row("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)");
const Operator& kTranspose = add_row("aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)");
const Operator& kMul = add_row("aten::mul.Tensor(Tensor self, Tensor other) -> Tensor");
const Operator& kWrite = add_row("aten::mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)");

constexpr MergeRule kRule{.most_multiplications = 1e9};

/// Layers of an input of 4 × 8 elements, whose weights of float32 are cast to bfloat16.
struct Example {
  Trace trace{"f", std::make_shared<TraceContext>()};
  ValueId x = trace.add_input(tensor_type(Dtype::kBfloat16, {4, 8}), "x");

  ValueId weight(std::int64_t width, const std::string& name) {
    return trace.add_input(tensor_type(Dtype::kFloat32, {width, 8}), name);
  }
  ValueId cast(ValueId weight) {
    return add_call(trace, kTo, {weight, Dtype::kBfloat16},
                    tensor_type(Dtype::kBfloat16, trace.tensor_type(weight)->sizes));
  }
  ValueId linear(ValueId cast) {
    return add_call(trace, kLinear, {x, cast, Argument()},
                    tensor_type(Dtype::kBfloat16, {4, trace.tensor_type(cast)->sizes[0]}));
  }
  ValueId heads(ValueId result) {
    const ValueId viewed =
        add_call(trace, kView, {result, ArgumentList{std::int64_t{4}, std::int64_t{3}, std::int64_t{2}}},
                 tensor_type(Dtype::kBfloat16, {4, 3, 2}));
    TensorType transposed = *trace.tensor_type(viewed);
    std::swap(transposed.sizes[0], transposed.sizes[1]);
    std::swap(transposed.strides[0], transposed.strides[1]);
    return add_call(trace, kTranspose, {viewed, std::int64_t{0}, std::int64_t{1}}, make_type(transposed));
  }
  ValueId mul(ValueId left, ValueId right) { return add_call(trace, kMul, {left, right}, trace.value(left).type); }
  [[nodiscard]] std::optional<Trace> merged(bool accepts = true) const {
    const auto all = [](const TensorType&) { return true; };
    const auto none = [](const TensorType&) { return false; };
    auto made = merge_linears(trace, kRule, accepts ? +all : +none, &find_row);
    if (made) verify(*made, "test");
    return made;
  }
};

}  // namespace

TEST(layers_are_merged_with_the_casts_of_their_weights) {
  static_cast<void>(kCat);
  static_cast<void>(kSplit);
  Example e;
  const ValueId q = e.weight(6, "q");
  const ValueId k = e.weight(6, "k");
  const ValueId query = e.heads(e.linear(e.cast(q)));
  const ValueId key = e.heads(e.linear(e.cast(k)));
  e.trace.outputs = {e.mul(query, key)};
  const Trace made = kDeadCodeElimination.run(e.merged().value(), &find_row);
  CHECK_EQ(print(made, {.deletions = false}), R"(# f: merged_linears; dead_code_elimination
import torch

@torch.no_grad()
def f(x, q, k):
  # x: "cpu bf16[4, 8]"
  # q: "cpu f32[6, 8]"
  # k: "cpu f32[6, 8]"
  t12 = torch.ops.aten.cat.default([q, k])  # t12: "cpu f32[12, 8]"
  t13 = torch.ops.aten.to.dtype(t12, torch.bfloat16)  # t13: "cpu bf16[12, 8]"
  t14 = torch.ops.aten.linear.default(x, t13)  # t14: "cpu bf16[4, 12]"
  (t4, t8) = torch.ops.aten.split_with_sizes.default(t14, [6, 6], -1)  # t4: "cpu bf16[4, 6]", t8: "cpu bf16[4, 6]"
  t5 = torch.ops.aten.view.default(t4, [4, 3, 2])  # t5: "cpu bf16[4, 3, 2]"
  t6 = torch.ops.aten.transpose.int(t5, 0, 1)  # t6: "cpu bf16[3, 4, 2]"
  t9 = torch.ops.aten.view.default(t8, [4, 3, 2])  # t9: "cpu bf16[4, 3, 2]"
  t10 = torch.ops.aten.transpose.int(t9, 0, 1)  # t10: "cpu bf16[3, 4, 2]"
  t11 = torch.ops.aten.mul.Tensor(t6, t10)  # t11: "cpu bf16[3, 4, 2]"
  return (t11,)
)");
  const TensorType& second = *made.tensor_type(key);
  CHECK(second.strides == Dims({2, 12, 1}));
  CHECK(second.storage_offset == Dim(6));
  CHECK(!e.merged(false));
}

TEST(an_input_that_is_cast_for_each_layer_is_one) {
  Example e;
  const ValueId wide = e.trace.add_input(tensor_type(Dtype::kFloat32, {4, 8}), "wide");
  const auto layer = [&](Dtype dtype, const char* name) {
    e.x = add_call(e.trace, kTo, {wide, dtype}, tensor_type(dtype, {4, 8}));
    return e.linear(e.cast(e.weight(6, name)));
  };
  const ValueId first = layer(Dtype::kBfloat16, "q");
  e.trace.outputs = {e.mul(first, layer(Dtype::kBfloat16, "k"))};
  CHECK(e.merged().has_value());
  Example other;
  const ValueId of_first = other.linear(other.cast(other.weight(6, "q")));
  other.x = other.trace.add_input(other.trace.value(other.x).type, "y");
  other.trace.outputs = {other.mul(of_first, other.linear(other.cast(other.weight(6, "k"))))};
  CHECK(!other.merged());
}

TEST(a_cast_that_somebody_else_reads_is_not_made_twice) {
  Example e;
  const ValueId shared = e.cast(e.weight(6, "q"));
  const ValueId query = e.linear(shared);
  e.trace.outputs = {e.mul(query, e.linear(e.cast(e.weight(6, "k")))), e.mul(shared, shared)};
  CHECK(!e.merged());
}

TEST(weights_that_are_not_cast_are_not_copied) {
  Example e;
  const ValueId q = e.trace.add_input(tensor_type(Dtype::kBfloat16, {6, 8}), "q");
  const ValueId k = e.trace.add_input(tensor_type(Dtype::kBfloat16, {6, 8}), "k");
  e.trace.outputs = {e.mul(e.linear(q), e.linear(k))};
  CHECK(!e.merged());
}

TEST(what_is_written_to_stays) {
  const auto merges = [](bool writes_input, bool writes_weight, bool writes_result) {
    Example e;
    const ValueId q = e.weight(6, "q");
    const ValueId query = e.linear(e.cast(q));
    const auto write = [&](bool writes, ValueId id) {
      if (writes) static_cast<void>(add_call(e.trace, kWrite, {id, id}, e.trace.value(id).type));
    };
    write(writes_input, e.x);
    write(writes_weight, q);
    write(writes_result, query);
    e.trace.outputs = {e.mul(query, e.linear(e.cast(e.weight(6, "k"))))};
    return e.merged().has_value();
  };
  CHECK(merges(false, false, false));
  CHECK(!merges(true, false, false));
  CHECK(!merges(false, true, false));
  CHECK(!merges(false, false, true));
}

TEST(results_whose_gradients_come_from_other_outputs_are_apart) {
  const auto trained = [](std::int64_t rows, std::int64_t columns, Dtype dtype, bool requires_grad = true) {
    TensorType type = std::get<TensorType>(*tensor_type(dtype, {rows, columns}));
    type.requires_grad = requires_grad;
    return make_type(type);
  };
  const auto merges = [&](bool detaches, bool gives_both) {
    Example e;
    const auto layer = [&](const char* name) {
      const ValueId weight = e.trace.add_input(trained(6, 8, Dtype::kFloat32), name);
      const ValueId cast = add_call(e.trace, kTo, {weight, Dtype::kBfloat16}, trained(6, 8, Dtype::kBfloat16));
      return add_call(e.trace, kLinear, {e.x, cast, Argument()}, trained(4, 6, Dtype::kBfloat16));
    };
    const ValueId first = layer("q");
    const ValueId second = layer("k");
    const ValueId left = add_call(e.trace, kMul, {first, first}, trained(4, 6, Dtype::kBfloat16));
    const ValueId right = add_call(e.trace, kMul, {second, second}, trained(4, 6, Dtype::kBfloat16, !detaches));
    const ValueId both = add_call(e.trace, kMul, {left, right}, trained(4, 6, Dtype::kBfloat16));
    e.trace.outputs = {both};
    if (gives_both) e.trace.outputs.emplace_back(left);
    return e.merged().has_value();
  };
  CHECK(merges(false, false));
  CHECK(!merges(true, false));
  CHECK(!merges(false, true));
}

TEST(trained_and_frozen_weights_are_apart) {
  Example e;
  const auto layer = [&](const char* name, bool is_trained) {
    TensorType type = std::get<TensorType>(*tensor_type(Dtype::kFloat32, {6, 8}));
    type.requires_grad = is_trained;
    return e.linear(e.cast(e.trace.add_input(make_type(type), name)));
  };
  e.trace.outputs = {e.mul(layer("a", true), layer("b", false))};
  CHECK(!e.merged());
  e.trace.outputs = {e.mul(e.mul(layer("c", true), layer("d", false)), e.mul(layer("e", true), layer("f", false)))};
  std::size_t splits = 0;
  const Trace made = e.merged().value();
  for (const BoundSymbol& symbol : made.symbols) splits += symbol.op == &kSplit ? 1 : 0;
  CHECK_EQ(splits, std::size_t{2});
}

}  // namespace thunder::passes
