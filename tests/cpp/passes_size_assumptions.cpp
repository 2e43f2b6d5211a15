#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/size_assumptions.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kAdd = add_row("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator& kView = add_row("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)");

const Operator& kSlice = add_row(
    "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)");

const Dim kRows = Dim::symbol(0, 12);
const Dim kColumns = Dim::symbol(1, 48);
const Dim kOthers = Dim::symbol(2, 12);

struct Example {
  Trace trace{"f", std::make_shared<TraceContext>()};
  ValueId input(Dims sizes) { return trace.add_input(tensor_type(Dtype::kFloat32, std::move(sizes))); }
  ValueId view(ValueId x, const Dims& sizes) {
    ArgumentList shape;
    for (const Dim& size : sizes) shape.emplace_back(size);
    return add_call(trace, kView, {x, Argument(std::move(shape))}, tensor_type(Dtype::kFloat32, sizes));
  }
  [[nodiscard]] Trace assumed() const {
    const auto result = assume_sizes(trace);
    CHECK(result.has_value());
    verify(*result, "test");
    return *result;
  }
};

}  // namespace

TEST(operands_are_as_large_as_the_result) {
  Example e;
  const ValueId x = e.input({kRows, kColumns});
  const ValueId y = e.input({kOthers, kColumns});
  e.trace.outputs = {add_call(e.trace, kAdd, {x, y}, tensor_type(Dtype::kFloat32, {kRows, kColumns}))};
  const Trace result = e.assumed();
  CHECK(result.conditions.empty());  // the size of an input says so
  CHECK(result.tensor_type(y)->sizes == (Dims{kRows, kColumns}));
}

TEST(a_view_has_as_many_elements_as_what_it_shows) {
  Example e;
  const ValueId x = e.input({kRows, kColumns});
  e.trace.outputs = {e.view(x, {kRows, floor_divide(kColumns, 4), 4})};
  const Trace result = e.assumed();
  CHECK(result.conditions.empty());
  CHECK(result.tensor_type(x)->sizes == (Dims{kRows, kColumns * 4}));
  CHECK(print(result).find("  s1 = t0.shape[1] // 4\n") != std::string::npos);
  CHECK(print(result).find("view.default(t0, [s0, s1, 4])") != std::string::npos);
}

TEST(a_slice_that_takes_everything_is_contiguous_up_to_its_end) {
  Example e;
  const ValueId x = e.input({kRows, kColumns});
  TensorType type = *e.trace.tensor_type(x);
  type.sizes[1] = smaller(kColumns, 64);
  e.trace.outputs = {add_call(e.trace, kSlice, {x, 1, 0, 64}, make_type(type))};
  const Trace result = e.assumed();
  CHECK(result.conditions == (std::vector<Condition>{{Condition::Kind::kAtMost, kColumns, 64}}));
  CHECK(print(result).find("  s1 = t0.shape[1]\n  assert s1 <= 64\n") != std::string::npos);
}

TEST(no_size_becomes_a_number) {
  Example e;
  const ValueId x = e.input({kRows});
  TensorType type = *e.trace.tensor_type(x);
  type.sizes[0] = 12;
  e.trace.outputs = {add_call(e.trace, kSlice, {x, 0, -12}, make_type(type))};
  CHECK(!assume_sizes(e.trace).has_value());
}

TEST(nothing_is_assumed_where_nothing_is_asked) {
  Example e;
  const ValueId x = e.input({kRows, kColumns});
  e.trace.outputs = {e.view(x, {kRows * kColumns})};
  CHECK(!assume_sizes(e.trace).has_value());
}

}  // namespace thunder::passes
