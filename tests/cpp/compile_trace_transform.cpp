// Transforms in C++ that change what prologue and computation hand on.
#include <ATen/ATen.h>

#include "bridge/constant.h"
#include "bridge/convert.h"
#include "check.h"
#include "compile/trace_transform.h"
#include "ir/builder.h"
#include "ir/trace_edit.h"
#include "traced_operator.h"
#include "tracer/operators.h"

namespace thunder::compile {
namespace {

using check::find;

const ir::TypePtr kWide = ir::tensor_type(ir::Dtype::kFloat64, {3});
const ir::TypePtr kNarrow = ir::tensor_type(ir::Dtype::kFloat32, {3});

/// sin(weight), where the module holds float32 and the program sees float64, replaced by "narrow".
CallTraces example() {
  const auto context = std::make_shared<ir::TraceContext>();
  CallTraces traces{ir::Trace(ir::TraceKind::kPrologue, context), ir::Trace(ir::TraceKind::kComputation, context),
                    ir::Trace(ir::TraceKind::kEpilogue, context)};
  const ir::ValueId given = traces.prologue.add_input(ir::make_type(ir::ObjectType{"tensor"}), "weight");
  traces.prologue.outputs = {given};
  const ir::ValueId weight = traces.computation.add_input(kWide, "weight");
  traces.computation.outputs = {ir::add_call(traces.computation, find("aten::sin"), {weight}, kWide)};
  traces.inputs = {
      {.source = 0, .tensor = at::ones({3}), .names = {"weight"}, .type = kNarrow, .seen = kWide, .owner = "narrow"}};
  return traces;
}

using PrePrologue = decltype(TraceTransform::pre_prologue);

/// Takes the float32 tensor, and computes with it in float64.
TraceTransform::Call widen(const CallTraces& traces) {
  ir::TraceEdit edit(traces.computation, "narrow");
  ir::Trace part("part", traces.computation.context());
  const ir::ValueId narrow = part.add_input(kNarrow);
  part.outputs = {
      ir::add_call(part, find("aten::to", "dtype"), {narrow, ir::Dtype::kFloat64, false, false, ir::None{}}, kWide)};
  const ir::ValueId weight = traces.computation.inputs[0];
  const ir::ArgumentList stored{ir::Argument(edit.set_input(0, kNarrow))};
  edit.substitute(weight, edit.insert(0, part, stored, {})[0]);
  return {traces.prologue, edit.finish(), traces.epilogue};
}

/// Returns a tensor of its own from the prologue, and adds it to the result.
TraceTransform::Call add_held(const CallTraces& traces, const at::Tensor& held) {
  ir::TraceEdit prologue(traces.prologue, "held");
  const ir::ValueId constant = prologue.add_value(ir::make_type(bridge::type_of(held)));
  ir::BoundSymbol symbol;
  symbol.op = tracer::tensor_constant_operator();
  symbol.arguments.emplace_back(bridge::add_tensor(*traces.prologue.context(), held));
  symbol.results.emplace_back(constant);
  prologue.insert(0, std::move(symbol));
  prologue.add_output(constant);
  ir::TraceEdit edit(traces.computation, "held");
  const ir::ValueId input = edit.add_input(kWide, "held");
  ir::Trace part("part", traces.computation.context());
  const ir::ValueId left = part.add_input(kWide), right = part.add_input(kWide);
  part.outputs = {ir::add_call(part, find("aten::add", "Tensor"), {left, right, 1}, kWide)};
  const ir::ArgumentList operands{traces.computation.outputs[0], ir::Argument(input)};
  edit.set_output(0, edit.insert(traces.computation.symbols.size(), part, operands, {})[0]);
  return {prologue.finish(), edit.finish(), traces.epilogue};
}

CallTraces apply(const char* name, PrePrologue change, CallTraces traces) {
  return apply_pre_prologue({name, std::move(change), {}}, std::move(traces));
}

std::string error_of(const char* name, PrePrologue change) {
  try {
    CallTraces made = apply(name, std::move(change), example());
    finish_inputs(made);
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TraceTransform::Call keep(const CallTraces& traces) { return {traces.prologue, traces.computation, traces.epilogue}; }

}  // namespace

TEST(a_replaced_input_takes_what_the_prologue_gives) {
  CallTraces made = apply("narrow", &widen, example());
  finish_inputs(made);
  CHECK_EQ(made.computation.tensor_type(made.computation.inputs[0])->dtype, ir::Dtype::kFloat32);
  CHECK_EQ(made.inputs[0].source, 0u);
}

TEST(another_transform_may_come_before_the_owner) {
  CallTraces made = apply("narrow", &widen, apply("other", &keep, example()));
  finish_inputs(made);
  CHECK_EQ(made.computation.tensor_type(made.computation.inputs[0])->dtype, ir::Dtype::kFloat32);
}

TEST(the_owner_must_take_what_it_replaced) {
  CHECK(contains(error_of("narrow", &keep), "transform narrow: input weight: the prologue gives cpu f32[3]"));
  // Also where the owner is not among the transforms.
  CHECK(contains(error_of("other", &keep), "transform narrow: input weight: the prologue gives cpu f32[3]"));
}

TEST(a_tensor_of_the_transform_is_an_input) {
  const at::Tensor held = at::ones({3}, at::kDouble);
  CallTraces made = apply("held", [&](const CallTraces& traces) { return add_held(traces, held); }, example());
  CHECK_EQ(made.inputs.size(), 2u);
  CHECK_EQ(made.inputs[1].source, ProgramInput::kHeld);
  CHECK(made.inputs[1].tensor.is_same(held));
  made = apply("narrow", &widen, std::move(made));
  finish_inputs(made);
  CHECK(made.inputs[1].tensor.is_same(held));
}

TEST(a_tensor_of_another_shape_is_refused) {
  const at::Tensor held = at::ones({4}, at::kDouble);
  const std::string error = error_of("held", [&](const CallTraces& traces) { return add_held(traces, held); });
  CHECK(contains(error, "transform held: input 1 (held) of computation: expected cpu f64[4], got cpu f64[3]"));
}

TEST(prologue_and_computation_have_to_agree) {
  const auto forget_prologue = [](const CallTraces& traces) {
    return TraceTransform::Call{traces.prologue, add_held(traces, at::ones({3}, at::kDouble)).computation,
                                traces.epilogue};
  };
  CHECK(contains(error_of("held", forget_prologue), "expected 1 inputs, as the prologue returns, got 2"));
  const auto forget_computation = [](const CallTraces& traces) {
    return TraceTransform::Call{add_held(traces, at::ones({3}, at::kDouble)).prologue, traces.computation,
                                traces.epilogue};
  };
  CHECK(contains(error_of("held", forget_computation), "expected 2 inputs, as the prologue returns, got 1"));
  const auto swap = [](const CallTraces& traces) {
    return TraceTransform::Call{traces.computation, traces.computation, traces.epilogue};
  };
  CHECK(contains(error_of("swap", swap), "expected the prologue, or an edit of it"));
}

TEST(outputs_are_added_behind_the_others_for_the_epilogue) {
  const auto add = [](const ir::TypePtr& type) {
    return [type](const CallTraces& traces) {
      TraceTransform::Call made = keep(traces);
      ir::Trace& computation = made.computation;
      computation.outputs.emplace_back(ir::add_call(computation, find("aten::sin"), {computation.inputs[0]}, type));
      return made;
    };
  };
  CHECK_EQ(apply("added", add(kWide), example()).computation.outputs.size(), 2u);
  ir::TensorType leaf = std::get<ir::TensorType>(*kWide);
  leaf.requires_grad = true;
  CHECK(contains(error_of("added", add(ir::make_type(leaf))), "expected a tensor that does not require grad"));
  const auto swap = [](const CallTraces& traces) {
    return TraceTransform::Call{traces.prologue, traces.computation, traces.computation};
  };
  CHECK(contains(error_of("swap", swap), "expected the epilogue, or an edit of it"));
}

}  // namespace thunder::compile
