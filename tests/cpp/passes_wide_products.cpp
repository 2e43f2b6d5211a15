#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/wide_products.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kMm = add_row("aten::mm(Tensor self, Tensor mat2) -> Tensor");
const Operator& kWide = add_row("aten::mm.dtype(Tensor self, Tensor mat2, ScalarType out_dtype) -> Tensor");
const Operator& kCast = add_row("aten::_to_copy(Tensor self, *, ScalarType? dtype=None) -> Tensor");
const Operator& kSelect = add_row("aten::select(Tensor(a) self, int dim, int index) -> Tensor(a)");
const Operator& kIndexPut =
    add_row("aten::index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor");
const Operator& kNeg = add_row("aten::neg(Tensor self) -> Tensor");

struct Example {
  Trace trace{"f", std::make_shared<TraceContext>()};
  TypePtr narrow = tensor_type(Dtype::kBfloat16, {8, 8}, {DeviceType::kCuda, 0});
  ValueId x = trace.add_input(narrow, "x");
  ValueId product = add_call(trace, kMm, {x, x}, narrow);

  ValueId cast(Dtype dtype) {
    return add_call(trace, kCast, {product, dtype}, tensor_type(dtype, {8, 8}, {DeviceType::kCuda, 0}));
  }
  [[nodiscard]] Trace rewritten(DeviceType device = DeviceType::kCuda) const {
    Trace made = widen_products(trace, device, &find_row);
    verify(made, "test");
    return made;
  }
  [[nodiscard]] bool is_left() const { return rewritten().symbols.size() == trace.symbols.size(); }
};

}  // namespace

TEST(a_product_that_is_only_cast_is_computed_in_float32) {
  static_cast<void>(kWide);
  Example e;
  e.trace.outputs = {e.cast(Dtype::kFloat32)};
  CHECK_EQ(print(e.rewritten(), {.deletions = false}), R"(# f: wide_products
import torch

@torch.no_grad()
def f(x):
  # x: "cuda:0 bf16[8, 8]"
  t2 = torch.ops.aten.mm.dtype(x, x, torch.float32)  # t2: "cuda:0 f32[8, 8]"
  return (t2,)
)");
  CHECK_EQ(e.rewritten(DeviceType::kCpu).symbols.size(), std::size_t{2});
}

TEST(products_that_somebody_else_reads_stay_narrow) {
  Example e;
  const ValueId wide = e.cast(Dtype::kFloat32);
  e.trace.outputs = {wide, add_call(e.trace, kNeg, {e.product}, e.narrow)};
  CHECK(e.is_left());
  Example given;
  given.trace.outputs = {given.cast(Dtype::kFloat32), given.product};
  CHECK(given.is_left());
}

TEST(the_caller_gets_views_of_what_is_computed_in_float32) {
  const auto views = [](bool negates) {
    Example e;
    const TypePtr row = tensor_type(Dtype::kFloat32, {8}, {DeviceType::kCuda, 0});
    const ValueId wide = e.cast(Dtype::kFloat32);
    const ValueId first = add_call(e.trace, kSelect, {wide, std::int64_t{0}, std::int64_t{0}}, row);
    const ValueId second = add_call(e.trace, kSelect, {wide, std::int64_t{0}, std::int64_t{1}}, row);
    e.trace.outputs = {first, negates ? add_call(e.trace, kNeg, {second}, row) : second};
    return e.is_left();
  };
  CHECK(!views(false));
  CHECK(views(true));
}

TEST(rows_may_be_added_to_what_is_computed_in_float32) {
  const auto added = [](bool is_table) {
    Example e;
    const TypePtr wide_type = tensor_type(Dtype::kFloat32, {8, 8}, {DeviceType::kCuda, 0});
    const ValueId indices = e.trace.add_input(tensor_type(Dtype::kInt64, {8}, {DeviceType::kCuda, 0}), "indices");
    const ValueId other = e.trace.add_input(wide_type, "other");
    const ValueId wide = e.cast(Dtype::kFloat32);
    const Argument places(ArgumentList{Argument(indices)});
    e.trace.outputs = {
        add_call(e.trace, kIndexPut, {is_table ? wide : other, places, is_table ? other : wide, true}, wide_type)};
    return e.is_left();
  };
  CHECK(!added(true));
  CHECK(added(false));
}

TEST(casts_that_are_computed_with_stay) {
  Example e;
  const ValueId wide = e.cast(Dtype::kFloat32);
  e.trace.outputs = {add_call(e.trace, kNeg, {wide}, tensor_type(Dtype::kFloat32, {8, 8}, {DeviceType::kCuda, 0}))};
  CHECK(e.is_left());
}

TEST(casts_to_other_dtypes_stay) {
  Example e;
  e.trace.outputs = {e.cast(Dtype::kFloat16)};
  CHECK(e.is_left());
}

}  // namespace thunder::passes
