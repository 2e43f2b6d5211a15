#include "check.h"
#include "ir/builder.h"
#include "ir/last_uses.h"

namespace thunder::ir {
namespace {

const Operator kAdd = parse_operator("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator kNote = parse_operator("note(Any value) -> ()", CallStyle::kComment);

std::string show(std::span<const ValueId> values) {
  std::string text;
  for (const ValueId id : values) text += std::to_string(index_of(id)) + " ";
  return text;
}

}  // namespace

TEST(values_die_after_their_last_use_and_outputs_never) {
  Trace trace("computation", std::make_shared<TraceContext>());
  const TypePtr type = tensor_type(Dtype::kFloat32, {4});
  const ValueId x = trace.add_input(type);
  const ValueId unused = trace.add_input(type);
  const ValueId output_input = trace.add_input(type);
  const ValueId a = add_call(trace, kAdd, {x, x}, type);
  add_call(trace, kAdd, {a, output_input}, type);  // dead
  const ValueId b = add_call(trace, kAdd, {a, x}, type);
  add_symbol(trace, kNote, {a}, {});
  trace.outputs = {b, ArgumentList{output_input}};

  const LastUses last_uses(trace);
  CHECK_EQ(show(last_uses.after(0)), "");
  CHECK_EQ(show(last_uses.after(1)), "4 ");
  CHECK_EQ(show(last_uses.after(2)), "3 0 ");
  CHECK_EQ(show(last_uses.after(3)), "");
  CHECK_EQ(show(last_uses.unused_inputs()), std::to_string(index_of(unused)) + " ");
}

}  // namespace thunder::ir
