#include "base/error.h"
#include "check.h"
#include "ir/builder.h"

namespace thunder::ir {

TEST(a_schema_gives_names_defaults_and_annotations) {
  const Operator op =
      parse_operator("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)");
  CHECK_EQ(op.name, "aten::add_");
  CHECK_EQ(op.overload, "Tensor");
  CHECK_EQ(op.parameters.size(), 3U);
  CHECK_EQ(op.parameters[0].type, "Tensor");
  CHECK_EQ(op.parameters[0].alias_set, "a");
  CHECK(op.parameters[0].mutated);
  CHECK(!op.parameters[1].keyword_only);
  CHECK(op.parameters[2].keyword_only);
  CHECK(op.parameters[2].default_value == Argument(1));
  CHECK(op.mutates);
  CHECK(!op.view);
}

TEST(a_view_and_lists_are_understood) {
  const Operator op = parse_operator("aten::split.Tensor(Tensor(a -> *) self, SymInt size, int dim=0) -> Tensor(a)[]");
  CHECK_EQ(op.parameters[0].alias_set, "a");
  CHECK_EQ(op.results[0].type, "Tensor[]");
  CHECK(op.view);
  CHECK(!op.mutates);
  const Operator conv = parse_operator("aten::c(Tensor x, int[2] stride=[1, 1], float eps=1e-05) -> (Tensor, Tensor)");
  CHECK_EQ(conv.parameters[1].type, "int[2]");
  CHECK(conv.parameters[1].default_value == Argument(ArgumentList{1, 1}));
  CHECK(conv.parameters[2].default_value == Argument(1e-5));
  CHECK_EQ(conv.results.size(), 2U);
}

TEST(what_is_no_schema_or_misses_an_argument_is_refused) {
  CHECK_THROWS(parse_operator("aten::add"), InternalError);
  const Operator op = parse_operator("aten::relu(Tensor self) -> Tensor");
  Trace trace("computation", std::make_shared<TraceContext>());
  CHECK_THROWS(add_symbol(trace, op, {}, {None{}}), InternalError);
}

}  // namespace thunder::ir
