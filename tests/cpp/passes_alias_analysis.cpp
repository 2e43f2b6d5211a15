#include "check.h"
#include "ir/builder.h"
#include "passes/alias_analysis.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator kView = parse_operator("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)");
const Operator kSplit = parse_operator("aten::split(Tensor(a -> *) self, SymInt size, int dim=0) -> Tensor(a)[]");
const Operator kAddInPlace = parse_operator("aten::add_(Tensor(a!) self, Tensor other) -> Tensor(a!)");
const Operator kMul = parse_operator("aten::mul(Tensor self, Tensor other) -> Tensor");

struct Example {
  Trace trace{"computation", std::make_shared<TraceContext>()};
  TypePtr type = tensor_type(Dtype::kFloat32, {4});
  ValueId x = trace.add_input(type);
  ValueId y = trace.add_input(type);
};

}  // namespace

TEST(views_and_in_place_results_share_a_set) {
  Example e;
  const ValueId view = add_call(e.trace, kView, {e.x, ArgumentList{4}}, e.type);
  const ValueId left = e.trace.add_value(e.type);
  const ValueId right = e.trace.add_value(e.type);
  add_symbol(e.trace, kSplit, {view, 2}, {ArgumentList{left, right}});
  const ValueId product = add_call(e.trace, kMul, {left, e.y}, e.type);
  const ValueId written = add_call(e.trace, kAddInPlace, {right, e.y}, e.type);
  e.trace.outputs = {written};

  const AliasAnalysis aliases(e.trace);
  CHECK(aliases.may_alias(e.x, right));
  CHECK(aliases.may_alias(left, written));
  CHECK(!aliases.may_alias(left, product));
  CHECK(!aliases.may_alias(written, e.y));
  CHECK(aliases.is_written(e.x));
  CHECK(!aliases.is_written(e.y));
  CHECK(aliases.touches_input(written));
  CHECK(!aliases.touches_input(product));
  CHECK(aliases.touches_output(e.x));
  CHECK(!aliases.touches_output(e.y));
}

TEST(a_view_without_annotations_may_alias_any_argument) {
  Example e;
  Operator view = parse_operator("mine::view(Tensor self, Tensor other) -> Tensor");
  view.view = true;
  const ValueId result = add_call(e.trace, view, {e.x, e.y}, e.type);
  const AliasAnalysis aliases(e.trace);
  CHECK(aliases.may_alias(result, e.x));
  CHECK(aliases.may_alias(result, e.y));
}

TEST(inputs_that_lie_in_the_same_memory_share_a_set) {
  Example e;
  const ValueId z = e.trace.add_input(e.type);
  e.trace.memory_of_inputs = {7, 3, 7};
  e.trace.outputs = {add_call(e.trace, kAddInPlace, {z, e.y}, e.type)};
  const AliasAnalysis aliases(e.trace);
  CHECK(aliases.is_written(e.x));
  CHECK(!aliases.is_written(e.y));
}

TEST(a_write_without_a_target_writes_to_all_arguments) {
  Example e;
  Operator write = parse_operator("mine::write(Tensor self, Tensor other) -> ()");
  write.mutates = true;
  add_symbol(e.trace, write, {e.x, e.y}, {});
  const AliasAnalysis aliases(e.trace);
  CHECK(aliases.is_written(e.x));
  CHECK(aliases.is_written(e.y));
  CHECK(!aliases.may_alias(e.x, e.y));
}

}  // namespace thunder::passes
