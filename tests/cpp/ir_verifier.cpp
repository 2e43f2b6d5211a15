#include "base/error.h"
#include "check.h"
#include "ir/builder.h"
#include "ir/verifier.h"

namespace thunder::ir {
namespace {

const Operator kAdd = parse_operator("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator kReturn = parse_operator("return(Any values) -> ()", CallStyle::kReturn);

TypePtr vector() { return tensor_type(Dtype::kFloat32, {4}); }

struct Example {
  Trace trace{"computation", std::make_shared<TraceContext>()};
  ValueId x = trace.add_input(vector(), "x");
  ValueId y = add_call(trace, kAdd, {x, x}, vector(), "y");
};

std::string complaint(const Trace& trace) {
  try {
    verify(trace, "some_pass");
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(a_sound_trace_passes) {
  Example example;
  example.trace.outputs = {example.y, ArgumentList{example.x, None{}}};
  CHECK_EQ(complaint(example.trace), "");
}

TEST(an_argument_that_is_made_later_is_refused) {
  Example example;
  const ValueId later = example.trace.add_value(vector());
  add_symbol(example.trace, kAdd, {example.x, later}, {example.trace.add_value(vector())});
  add_symbol(example.trace, kAdd, {example.x, example.x}, {later});
  example.trace.symbols[1].location = {example.trace.context()->intern("model.py"), 3};
  CHECK_EQ(complaint(example.trace),
           "some_pass: argument t2 is used before it is made in trace computation, at: "
           "t3 = torch.ops.aten.add.Tensor(x, t2)  # t3: \"cpu f32[4]\" (model.py:3)");
}

TEST(a_result_that_is_made_twice_is_refused) {
  Example example;
  add_symbol(example.trace, kAdd, {example.x, example.x}, {example.y});
  CHECK_THROWS(verify(example.trace, "some_pass"), InternalError);
}

TEST(a_value_without_a_type_is_refused) {
  Example example;
  add_call(example.trace, kAdd, {example.x, example.x}, nullptr);
  CHECK_THROWS(verify(example.trace, "some_pass"), InternalError);
}

TEST(counts_that_differ_from_the_schema_are_refused) {
  Example example;
  example.trace.symbols.back().arguments.pop_back();
  CHECK_THROWS(verify(example.trace, "some_pass"), InternalError);
  Example other;
  other.trace.symbols.back().results.emplace_back(None{});
  CHECK_THROWS(verify(other.trace, "some_pass"), InternalError);
}

TEST(an_unknown_value_is_refused_and_shown) {
  Example example;
  example.trace.outputs = {ValueId{77}};
  CHECK_EQ(complaint(example.trace), "some_pass: output t77 is no value of the trace in trace computation");
  add_symbol(example.trace, kAdd, {example.x, kNoValue}, {None{}});
  CHECK_THROWS(verify(example.trace, "some_pass"), InternalError);
}

TEST(a_symbol_without_operator_is_refused) {
  Example example;
  example.trace.add({});
  CHECK_THROWS(verify(example.trace, "some_pass"), InternalError);
}

TEST(nested_operations_see_the_outside_and_are_not_seen_from_it) {
  Example example;
  const ValueId inner = example.trace.add_value(vector());
  BoundSymbol first = example.trace.symbols.back();
  BoundSymbol second = first;
  first.results = {inner};
  second.arguments = {inner, example.x, 1};
  example.trace.symbols.back().nested = {first, second};
  CHECK_EQ(complaint(example.trace), "");
  example.trace.outputs = {inner};
  CHECK_THROWS(verify(example.trace, "some_pass"), InternalError);
}

TEST(a_return_stands_last) {
  Example example;
  add_symbol(example.trace, kReturn, {example.y}, {});
  CHECK_EQ(complaint(example.trace), "");
  add_call(example.trace, kAdd, {example.x, example.x}, vector());
  CHECK_THROWS(verify(example.trace, "some_pass"), InternalError);
}

}  // namespace thunder::ir
