#include "check.h"
#include "ir/builder.h"
#include "ir/uses.h"

namespace thunder::ir {
namespace {

const Operator kAdd = parse_operator("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator kNote = parse_operator("note(Any value) -> ()", CallStyle::kComment);

std::string show(std::span<const std::uint32_t> places) {
  std::string text;
  for (const std::uint32_t place : places) text += std::to_string(place) + " ";
  return text;
}

struct Example {
  Trace trace{"f", std::make_shared<TraceContext>()};
  TypePtr type = tensor_type(Dtype::kFloat32, {4});
  ValueId x = trace.add_input(type);
  ValueId unused = trace.add_input(type);
  ValueId returned = trace.add_input(type);
  ValueId a = add_call(trace, kAdd, {x, x}, type);
  ValueId dead = add_call(trace, kAdd, {a, returned}, type);
  ValueId b = add_call(trace, kAdd, {a, x}, type);
  Example() {
    add_symbol(trace, kNote, {a}, {});
    trace.outputs = {b, ArgumentList{returned}};
  }
};

}  // namespace

TEST(readers_are_listed_once_and_uses_are_counted) {
  const Example e;
  const Uses uses(e.trace);
  CHECK_EQ(show(uses.readers(e.x)), "0 2 ");
  CHECK_EQ(uses.count(e.x), 3U);
  CHECK_EQ(show(uses.readers(e.a)), "1 2 ");  // the comment reads nothing
  CHECK_EQ(show(uses.readers(e.unused)), "");
  CHECK_EQ(uses.count(e.returned), 2U);
  CHECK_EQ(uses.count(e.dead), 0U);
}

TEST(a_value_has_a_maker_unless_it_is_an_input) {
  const Example e;
  const Uses uses(e.trace);
  CHECK_EQ(uses.maker(e.x), kNoPlace);
  CHECK_EQ(uses.maker(e.b), 2U);
}

TEST(values_die_after_their_last_use_and_outputs_never) {
  const Example e;
  const Uses uses(e.trace);
  CHECK_EQ(uses.last_use(e.x), 2U);
  CHECK_EQ(uses.last_use(e.a), 2U);
  CHECK_EQ(uses.last_use(e.dead), 1U);
  CHECK_EQ(uses.last_use(e.unused), kNoPlace);
  CHECK_EQ(uses.last_use(e.b), kNoPlace);
  CHECK_EQ(uses.last_use(e.returned), kNoPlace);
  CHECK(uses.is_output(e.returned) && !uses.is_output(e.a));
}

}  // namespace thunder::ir
