#include <array>

#include "check.h"
#include "ir/builder.h"
#include "ir/equality.h"

namespace thunder::ir {
namespace {

const Operator kMix = parse_operator("aten::mix(Tensor self, Tensor other, float scale=1.0) -> Tensor");
const Operator kAdd = parse_operator("aten::add(Tensor self, Tensor other, float scale=1.0) -> Tensor");

struct Example {
  Trace trace{TraceKind::kComputation, std::make_shared<TraceContext>()};
  TypePtr type = tensor_type(Dtype::kFloat32, {2});
  ValueId x = trace.add_input(type, "x");
  ValueId y = trace.add_input(type, "y");
  ValueId z = add_call(trace, kMix, {x, y, 0.0}, type, {}, {trace.context()->intern("model.py"), 12});
  Example() {
    trace.symbols[0].comment = "a comment";
    trace.memory_of_inputs = {0, 1};
    trace.outputs = {z};
    trace.add_history("recorded");
  }
};

template <typename Change>
bool differs(const Change& change) {
  Example changed;
  change(changed.trace);
  return !is_same(Example().trace, changed.trace);
}

}  // namespace

TEST(traces_of_different_contexts_are_the_same) {
  CHECK(is_same(Example().trace, Example().trace));
  CHECK_EQ(hash_value(Example().trace), hash_value(Example().trace));
}

TEST(traces_that_differ_in_anything_are_not_the_same) {
  const TypePtr other = tensor_type(Dtype::kFloat32, {3});
  CHECK(differs([&](Trace& trace) { trace.set_type(trace.inputs[0], other); }));
  CHECK(differs([](Trace& trace) { trace.symbols[0].arguments[2] = Argument(-0.0); }));
  CHECK(differs([](Trace& trace) { trace.symbols[0].location = {trace.context()->intern("other.py"), 12}; }));
  CHECK(differs([](Trace& trace) { trace.symbols[0].location.line = 13; }));
  CHECK(differs([](Trace& trace) { trace.symbols[0].comment.clear(); }));
  CHECK(differs([](Trace& trace) { trace.symbols[0].op = &kAdd; }));
  CHECK(differs([](Trace& trace) { trace.symbols[0].nested.emplace_back().op = &kAdd; }));
  CHECK(differs([](Trace& trace) { trace.outputs.pop_back(); }));
  CHECK(differs([](Trace& trace) { trace.memory_of_inputs = {0, 0}; }));
  CHECK(differs([](Trace& trace) { trace.add_history("more"); }));
  CHECK(differs([](Trace& trace) { trace = Trace("computation", trace.context()); }));
}

TEST(keys_of_calls_that_do_the_same_are_equal) {
  Example e;
  const ValueId again = add_call(e.trace, kMix, {e.y, e.x, 0.0}, e.type);
  const ValueId twice = add_call(e.trace, kMix, {e.x, e.x, 0.0}, e.type);
  static_cast<void>(twice);
  const auto key = [&](std::size_t symbol, std::vector<ValueId> values) {
    return CallKey(e.trace.symbols[symbol], values, e.trace);
  };
  static_cast<void>(again);
  CHECK(key(0, {e.x, e.y}) == key(1, {e.y, e.x}));
  CHECK_EQ(CallKey::Hash()(key(0, {e.x, e.y})), CallKey::Hash()(key(1, {e.y, e.x})));
  CHECK(!(key(0, {e.x, e.y}) == key(2, {e.x})));
  CHECK(is_same_call(e.trace.symbols[0], e.trace.symbols[0]));
  CHECK(!is_same_call(e.trace.symbols[0], e.trace.symbols[1]));
}

}  // namespace thunder::ir
