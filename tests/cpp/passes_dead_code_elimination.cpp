#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "passes/dead_code_elimination.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator kAdd = parse_operator("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator kTopk = parse_operator("aten::topk(Tensor self, SymInt k) -> (Tensor, Tensor)");
const Operator kCopy = parse_operator("aten::copy_(Tensor(a!) self, Tensor src) -> Tensor(a!)");
const Operator kNote = parse_operator("note(Any value) -> ()", CallStyle::kComment);
const Operator kGuard = [] {
  Operator op = parse_operator("prims::check(Any value) -> ()", CallStyle::kPrimitive);
  op.effect = true;
  return op;
}();
const Operator kRand = [] {
  Operator op = parse_operator("aten::rand_like(Tensor self) -> Tensor");
  op.random = true;
  return op;
}();

Trace example() {
  Trace trace("computation", std::make_shared<TraceContext>());
  const TypePtr type = tensor_type(Dtype::kFloat32, {4});
  const ValueId x = trace.add_input(type, "x");
  const ValueId buffer = trace.add_input(type, "buffer");
  add_symbol(trace, kGuard, {x}, {});
  const ValueId dead = add_call(trace, kAdd, {x, x}, type, "dead");
  add_call(trace, kAdd, {dead, x}, type, "dead_too");
  const ValueId written = add_call(trace, kAdd, {x, x, 2}, type, "written");
  add_symbol(trace, kNote, {dead}, {});
  add_symbol(trace, kNote, {written}, {});
  add_symbol(trace, kCopy, {buffer, written}, {trace.add_value(type, "copied")});
  add_call(trace, kRand, {x}, type, "noise");
  const ValueId values = trace.add_value(type, "values");
  add_symbol(trace, kTopk, {x, 2}, {trace.add_value(type, "unused"), values});
  trace.outputs = {ArgumentList{values}};
  return trace;
}

}  // namespace

TEST(what_nothing_needs_is_dropped) {
  const Trace result = eliminate_dead_code(example());
  verify(result, "test");
  CHECK_EQ(print(result), R"(# computation: dead_code_elimination
import torch
from thunder import prims

@torch.no_grad()
def computation(x, buffer):
  # x: "cpu f32[4]"
  # buffer: "cpu f32[4]"
  prims.check(x)
  written = torch.ops.aten.add.Tensor(x, x, alpha=2)  # written: "cpu f32[4]"
  # note(written,)
  copied = torch.ops.aten.copy_.default(buffer, written)  # copied: "cpu f32[4]"
  del buffer, written, copied
  noise = torch.ops.aten.rand_like.default(x)  # noise: "cpu f32[4]"
  del noise
  (unused, values) = torch.ops.aten.topk.default(x, 2)  # unused: "cpu f32[4]", values: "cpu f32[4]"
  del x, unused
  return ([values],)
)");
}

TEST(an_unused_random_operator_goes_when_the_stream_need_not_be_preserved) {
  const Trace kept = eliminate_dead_code(example());
  const Trace dropped = eliminate_dead_code(example(), {.preserve_random_stream = false});
  CHECK_EQ(dropped.symbols.size() + 1, kept.symbols.size());
  CHECK(print(dropped).find("rand_like") == std::string::npos);
}

TEST(what_a_return_takes_is_kept) {
  static const Operator kReturn = parse_operator("return(Any value) -> ()", CallStyle::kReturn);
  Trace trace("prologue", std::make_shared<TraceContext>());
  const TypePtr type = tensor_type(Dtype::kFloat32, {4});
  const ValueId x = trace.add_input(type, "x");
  add_symbol(trace, kReturn, {add_call(trace, kAdd, {x, x}, type)}, {});
  CHECK_EQ(eliminate_dead_code(trace).symbols.size(), 2U);
}

}  // namespace thunder::passes
