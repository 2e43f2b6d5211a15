#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/dead_code_elimination.h"
#include "passes/layout_cleanup.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kView = add_row("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)");
const Operator& kReshape = add_row("aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)");
const Operator& kUnsqueeze = add_row("aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)");
const Operator& kTransposed = add_row("aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)");
const Operator& kPermute = add_row("aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)");
const Operator& kClone = add_row("aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor");
const Operator& kCast = add_row("aten::_to_copy(Tensor self, *, ScalarType? dtype=None) -> Tensor");
const Operator& kNeg = add_row("aten::neg(Tensor self) -> Tensor");
const Operator& kZero = add_row("aten::zero_(Tensor(a!) self) -> Tensor(a!)");

TypePtr permuted(Dims sizes, Dims strides) {
  TensorType type = std::get<TensorType>(*tensor_type(Dtype::kFloat32, std::move(sizes)));
  type.strides = std::move(strides);
  return make_type(std::move(type));
}

struct Example {
  Trace trace{"computation", std::make_shared<TraceContext>()};
  ValueId x = trace.add_input(tensor_type(Dtype::kFloat32, {2, 3, 4}), "x");

  ValueId call(const Operator& op, ArgumentList arguments, TypePtr type) {
    return add_call(trace, op, std::move(arguments), std::move(type));
  }
  ValueId cast(ValueId value, Dtype dtype) { return call(kCast, {value, dtype}, tensor_type(dtype, {2, 3, 4})); }
  /// The trace without what the pass made superfluous.
  Trace cleaned(ValueId result) {
    trace.outputs = {call(kNeg, {result}, trace.value(result).type)};
    Trace clean = eliminate_dead_code(clean_up_layout(trace, &find_row));
    verify(clean, "test");
    return clean;
  }
};

}  // namespace

TEST(reshapes_of_reshapes_are_one) {
  Example e;
  const ValueId flat = e.call(kView, {e.x, ArgumentList{24}}, tensor_type(Dtype::kFloat32, {24}));
  const ValueId more = e.call(kView, {flat, ArgumentList{8, 3}}, tensor_type(Dtype::kFloat32, {8, 3}));
  const ValueId last = e.call(kReshape, {more, ArgumentList{6, 4}}, tensor_type(Dtype::kFloat32, {6, 4}));
  CHECK_EQ(print(e.cleaned(last)), R"(# computation: layout_cleanup; dead_code_elimination
import torch

@torch.no_grad()
def computation(x):
  # x: "cpu f32[2, 3, 4]"
  t3 = torch.ops.aten.reshape.default(x, [6, 4])  # t3: "cpu f32[6, 4]"
  del x
  t4 = torch.ops.aten.neg.default(t3)  # t4: "cpu f32[6, 4]"
  del t3
  return (t4,)
)");
}

TEST(a_reshape_back_is_nothing) {
  Example e;
  const ValueId flat = e.call(kView, {e.x, ArgumentList{24}}, tensor_type(Dtype::kFloat32, {24}));
  const ValueId more = e.call(kUnsqueeze, {flat, 0}, tensor_type(Dtype::kFloat32, {1, 24}));
  const ValueId back = e.call(kView, {more, ArgumentList{2, 3, 4}}, e.trace.value(e.x).type);
  CHECK_EQ(e.cleaned(back).symbols.size(), 1U);
}

TEST(a_view_of_a_copy_is_no_view_of_what_was_copied) {
  Example e;
  const ValueId turned = e.call(kTransposed, {e.x, 0, 1}, permuted({3, 2, 4}, {4, 12, 1}));
  const ValueId copy = e.call(kReshape, {turned, ArgumentList{24}}, tensor_type(Dtype::kFloat32, {24}));
  const ValueId split = e.call(kView, {copy, ArgumentList{3, 2, 2, 2}}, tensor_type(Dtype::kFloat32, {3, 2, 2, 2}));
  const Trace result = e.cleaned(split);
  CHECK_EQ(result.symbols.size(), 4U);
  CHECK(result.symbols[2].op == &kView);
}

TEST(a_copy_of_a_copy_is_one_copy) {
  for (const Dim& size : {Dim(5), Dim::symbol(0, 5)}) {
    Example e;
    const ValueId heads = e.trace.add_input(tensor_type(Dtype::kFloat32, {2, 3, size, 4}), "heads");
    const ValueId turned =
        e.call(kTransposed, {heads, 1, 2}, permuted({2, size, 3, 4}, {Dim(12) * size, 4, Dim(4) * size, 1}));
    const ValueId copy =
        e.call(kReshape, {turned, ArgumentList{2, size, 12}}, tensor_type(Dtype::kFloat32, {2, size, 12}));
    const Dim rows = Dim(2) * size;
    const ValueId flat = e.call(kView, {copy, ArgumentList{rows, 12}}, tensor_type(Dtype::kFloat32, {rows, 12}));
    const Trace result = e.cleaned(flat);
    CHECK_EQ(result.symbols.size(), 3U);
    CHECK_EQ(result.symbols[1].op->name, "aten::reshape");
  }
}

TEST(a_transposition_back_is_nothing_and_two_are_a_permutation) {
  Example back, two;
  const TypePtr swapped = permuted({4, 3, 2}, {1, 4, 12});
  ValueId once = back.call(kTransposed, {back.x, 0, -1}, swapped);
  CHECK_EQ(back.cleaned(back.call(kTransposed, {once, 2, 0}, back.trace.value(back.x).type)).symbols.size(), 1U);
  once = two.call(kTransposed, {two.x, 0, 2}, swapped);
  const Trace result = two.cleaned(two.call(kTransposed, {once, 1, 2}, permuted({4, 2, 3}, {1, 12, 4})));
  CHECK_EQ(result.symbols.size(), 2U);
  CHECK(result.symbols[0].op == &kPermute);
  CHECK(result.symbols[0].arguments[1] == Argument(ArgumentList{2, 0, 1}));
}

TEST(exact_casts_in_between_go) {
  Example back, through, lossy;
  CHECK_EQ(back.cleaned(back.cast(back.cast(back.x, Dtype::kFloat64), Dtype::kFloat32)).symbols.size(), 1U);
  const Trace result = through.cleaned(through.cast(through.cast(through.x, Dtype::kFloat64), Dtype::kBfloat16));
  CHECK_EQ(result.symbols.size(), 2U);
  CHECK(result.symbols[0].arguments[0] == Argument(through.x));
  CHECK_EQ(lossy.cleaned(lossy.cast(lossy.cast(lossy.x, Dtype::kFloat16), Dtype::kFloat32)).symbols.size(), 3U);
}

TEST(which_casts_are_exact) {
  CHECK(cast_is_exact(Dtype::kBfloat16, Dtype::kFloat32));
  CHECK(cast_is_exact(Dtype::kInt16, Dtype::kFloat32));
  CHECK(cast_is_exact(Dtype::kBool, Dtype::kUint8));
  CHECK(!cast_is_exact(Dtype::kFloat16, Dtype::kBfloat16));
  CHECK(!cast_is_exact(Dtype::kInt64, Dtype::kFloat64));
  CHECK(!cast_is_exact(Dtype::kInt8, Dtype::kUint8));
  CHECK(!cast_is_exact(Dtype::kFloat32, Dtype::kInt64));
}

TEST(a_copy_that_is_written_to_stays) {
  Example e;
  const TypePtr type = e.trace.value(e.x).type;
  const ValueId copy = e.call(kClone, {e.x, None{}}, type);
  add_symbol(e.trace, kZero, {copy}, {e.trace.add_value(type)});
  CHECK_EQ(e.cleaned(copy).symbols.size(), 3U);
}

TEST(a_copy_that_the_caller_gets_stays) {
  Example e;
  e.trace.outputs = {e.call(kClone, {e.x, None{}}, e.trace.value(e.x).type)};
  CHECK(clean_up_layout(e.trace, &find_row).outputs == e.trace.outputs);
}

}  // namespace thunder::passes
