#include "check.h"
#include "ir/builder.h"
#include "ir/extraction.h"
#include "ir/printer.h"
#include "ir/verifier.h"

namespace thunder::ir {

TEST(a_block_becomes_a_trace_of_its_own) {
  static const Operator kAdd = parse_operator("aten::add.Tensor(Tensor self, Tensor other) -> Tensor");
  static const Operator kBlock =
      parse_operator("prims::fused(str executor, Tensor[] tensors) -> Tensor[]", CallStyle::kBlock);
  Trace trace("f", std::make_shared<TraceContext>());
  const TypePtr type = tensor_type(Dtype::kFloat32, {3});
  const ValueId x = trace.add_input(type, "x");
  const ValueId y = trace.add_input(type, "y");
  BoundSymbol block;
  block.op = &kBlock;
  const ValueId sum = trace.add_value(type);
  const ValueId doubled = trace.add_value(type);
  const ArgumentList reads{y, x, y};
  block.arguments = {Argument(std::string("cpu")), Argument(reads)};
  block.results = {Argument(ArgumentList{doubled, None{}})};
  add_symbol(trace, kAdd, {x, y}, {sum});
  block.nested.push_back(trace.symbols[0]);
  add_symbol(trace, kAdd, {sum, sum}, {doubled});
  block.nested.push_back(trace.symbols[1]);
  const Trace part = extract(block, trace, "part");
  verify(part, "test");
  CHECK_EQ(part.inputs.size(), 2U);
  CHECK_EQ(part.value_count(), 4U);
  CHECK(part.symbols[0].nested[0].arguments == (ArgumentList{part.inputs[1], part.inputs[0]}));
  CHECK_EQ(part.outputs.size(), 2U);
  CHECK(part.outputs[1].is<None>());
}

}  // namespace thunder::ir
