#include "base/error.h"
#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/trace_edit.h"
#include "ir/verifier.h"

namespace thunder::ir {
namespace {

const Operator kSin = parse_operator("aten::sin(Tensor self) -> Tensor");
const Operator kCos = parse_operator("aten::cos(Tensor self) -> Tensor");

TypePtr vector() { return tensor_type(Dtype::kFloat32, {4}); }

/// cos(sin(x))
Trace example() {
  Trace trace("computation", std::make_shared<TraceContext>());
  const ValueId x = trace.add_input(vector(), "x");
  const ValueId y = add_call(trace, kSin, {x}, vector(), "y");
  trace.symbols.back().location = {trace.context()->intern("model.py"), 3};
  trace.outputs = {add_call(trace, kCos, {y}, vector(), "z")};
  return trace;
}

/// One call of `op`.
Trace part(const Operator& op) {
  Trace trace("part", std::make_shared<TraceContext>());
  const ValueId a = trace.add_input(vector());
  trace.outputs = {add_call(trace, op, {a}, vector())};
  return trace;
}

std::string text(const Trace& trace) { return print(trace, {.locations = false, .deletions = false}); }

}  // namespace

TEST(edits_are_made_at_once_and_the_trace_stays) {
  const Trace trace = example();
  const std::string before = print(trace);
  const ValueId x = trace.inputs[0], y{1};
  TraceEdit edit(trace, "edit");
  const ArgumentList replaced = edit.insert(0, part(kCos), ArgumentList{x}, trace.symbols[0].location);
  edit.remove(0);
  edit.substitute(y, replaced[0]);
  const ArgumentList last = edit.insert(2, part(kSin), ArgumentList{y}, {});
  edit.set_output(0, last[0]);
  const Trace made = edit.finish();
  verify(made, "test");
  CHECK_EQ(text(made), R"(# computation: edit
import torch

@torch.no_grad()
def computation(x):
  # x: "cpu f32[4]"
  t3 = torch.ops.aten.cos.default(x)  # t3: "cpu f32[4]"
  z = torch.ops.aten.cos.default(t3)  # z: "cpu f32[4]"
  t4 = torch.ops.aten.sin.default(t3)  # t4: "cpu f32[4]"
  return (t4,)
)");
  CHECK_EQ(made.symbols[0].location.line, 3);
  CHECK_EQ(print(trace), before);
}

TEST(what_is_inserted_keeps_the_value_that_others_read_a_substitute_of) {
  const Trace trace = example();
  const ValueId y{1};
  TraceEdit edit(trace, "edit");
  edit.substitute(y, edit.insert(1, part(kSin), ArgumentList{y}, {})[0]);
  CHECK_EQ(text(edit.finish()), R"(# computation: edit
import torch

@torch.no_grad()
def computation(x):
  # x: "cpu f32[4]"
  y = torch.ops.aten.sin.default(x)  # y: "cpu f32[4]"
  t3 = torch.ops.aten.sin.default(y)  # t3: "cpu f32[4]"
  z = torch.ops.aten.cos.default(t3)  # z: "cpu f32[4]"
  return (z,)
)");
}

TEST(input_of_another_type_is_read_through_its_substitute) {
  const Trace trace = example();
  const ValueId x = trace.inputs[0];
  TraceEdit edit(trace, "edit");
  const ValueId wide = edit.set_input(0, tensor_type(Dtype::kFloat64, {4}));
  edit.substitute(x, edit.insert(0, part(kCos), ArgumentList{wide}, {})[0]);
  const Trace made = edit.finish();
  verify(made, "test");
  CHECK_EQ(made.tensor_type(made.inputs[0])->dtype, Dtype::kFloat64);
  CHECK(made.symbols[1].arguments[0] == made.symbols[0].results[0]);
}

TEST(inputs_and_outputs_come_last_and_go) {
  Trace trace = example();
  const ValueId x = trace.inputs[0], y{1};
  trace.memory_of_inputs = {4};
  TraceEdit edit(trace, "edit");
  const ValueId other = edit.add_input(vector(), "other");
  edit.substitute(x, other);
  edit.remove_input(0);
  edit.add_output(y);
  edit.remove_output(0);
  const Trace made = edit.finish();
  verify(made, "test");
  CHECK_EQ(text(made), R"(# computation: edit
import torch

@torch.no_grad()
def computation(other):
  # other: "cpu f32[4]"
  y = torch.ops.aten.sin.default(other)  # y: "cpu f32[4]"
  z = torch.ops.aten.cos.default(y)  # z: "cpu f32[4]"
  return (y,)
)");
  CHECK_EQ(made.memory_of_inputs.size(), 1u);
  CHECK(made.memory_of_inputs[0] != 4u);
}

TEST(removed_input_that_is_read_does_not_verify) {
  const Trace trace = example();
  TraceEdit edit(trace, "edit");
  edit.remove_input(0);
  const Trace made = edit.finish();
  CHECK_THROWS(verify(made, "test"), InternalError);
}

TEST(removed_symbol_whose_result_is_read_does_not_verify) {
  const Trace trace = example();
  TraceEdit edit(trace, "edit");
  edit.remove(0);
  const Trace made = edit.finish();
  CHECK_THROWS(verify(made, "test"), InternalError);
  CHECK_THROWS(edit.insert(9, BoundSymbol()), InternalError);
}

}  // namespace thunder::ir
