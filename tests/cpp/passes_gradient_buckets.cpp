// Gradients are averaged in buckets by size, in the order in which they arise; waits come last.
#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "ir/builder.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/pass.h"

namespace thunder::passes {

extern const Pass kGradientBuckets;
extern const Pass kGradientMarks;

namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kAverage = add_row(
    "thunder::average_gradient(Tensor gradient, str group_name, int group_size, int bucket_bytes, ScalarType? "
    "dtype=None, int? order=None) -> Tensor");
const Operator& kReplicated = add_row(
    "thunder::replicated(Tensor(a) self, str group_name, int group_size, int bucket_bytes, ScalarType? dtype=None) -> "
    "Tensor(a)");
const Operator& kTogether = add_row(
    "thunder::replicated_together(Tensor[] parameters, str group_name, int group_size, int bucket_bytes, ScalarType? "
    "dtype, bool adds_kept) -> Tensor[]");
const Operator& kIfUsed = add_row("thunder::gradient_if_used(Tensor(a) gradient, Tensor used, int place) -> Tensor(a)");
const Operator& kExp = add_row("aten::exp(Tensor self) -> Tensor");
[[maybe_unused]] const bool kHasCollectives = add_collectives();

struct Example {
  Trace trace{TraceKind::kBackward, std::make_shared<TraceContext>()};
  TypePtr matrix = tensor_type(Dtype::kFloat32, {4, 8});
  ValueId x = trace.add_input(matrix, "x");

  ValueId exp(ValueId a) { return add_call(trace, kExp, {a}, trace.value(a).type); }
  ValueId average(ValueId a, std::int64_t bytes, const char* group = "0", Argument dtype = {}, Argument order = {}) {
    return add_call(trace, kAverage, {a, group, 2, bytes, std::move(dtype), std::move(order)}, trace.value(a).type);
  }
  [[nodiscard]] std::string rewritten() const {
    const Trace result = kGradientBuckets.run(trace, &find_row);
    verify(result, "test");
    std::string names;
    for (const BoundSymbol& symbol : result.symbols) {
      const std::string& name = symbol.op->name;
      names += (names.empty() ? "" : " ") + name.substr(name.find("::") + 2);
    }
    return names;
  }
};

constexpr std::int64_t kTwo = 2 * 4 * 8 * 4;  // bytes of two gradients

}  // namespace

TEST(a_bucket_starts_behind_its_last_gradient) {
  Example e;
  const ValueId first = e.exp(e.x);
  const ValueId second = e.exp(first);
  const ValueId third = e.exp(second);
  // As a backward has them: the averages at the end.
  e.trace.outputs = {e.average(third, kTwo), e.average(second, kTwo), e.average(first, kTwo)};
  CHECK_EQ(e.rewritten(),
           "exp exp reshape reshape cat mul all_reduce_ exp mul all_reduce_ wait_tensor slice view slice view "
           "wait_tensor");
}

TEST(gradients_with_an_order_are_sent_in_it) {
  for (const bool is_swapped : {false, true}) {
    Example e;
    const ValueId first = e.exp(e.x);
    const ValueId second = e.exp(first);
    const ValueId third = e.exp(second);
    e.trace.outputs = {e.average(is_swapped ? second : first, kTwo, "0", {}, 1),
                       e.average(is_swapped ? first : second, kTwo, "0", {}, 0), e.average(third, kTwo, "0", {}, 2)};
    CHECK_EQ(e.rewritten(),
             "exp exp reshape reshape cat mul all_reduce_ exp mul all_reduce_ wait_tensor slice view slice view "
             "wait_tensor");
  }
}

TEST(a_bucket_with_an_order_waits_for_those_before_it) {
  Example e;
  const ValueId first = e.exp(e.x);
  const ValueId second = e.exp(first);
  e.trace.outputs = {e.average(second, kTwo / 2, "0", {}, 0), e.average(first, kTwo / 2, "0", {}, 1)};
  CHECK_EQ(e.rewritten(), "exp exp mul all_reduce_ mul all_reduce_ wait_tensor wait_tensor");
}

TEST(what_depends_on_averages_of_other_processes_comes_behind_all_waits) {
  Example e;
  const ValueId used = e.average(e.exp(e.x), kTwo, "0", {}, 1);
  const ValueId average = e.average(e.x, kTwo, "0", {}, 0);
  e.trace.outputs = {add_call(e.trace, kIfUsed, {average, used, 0}, e.matrix)};
  CHECK_EQ(e.rewritten(), "exp reshape reshape cat mul all_reduce_ wait_tensor slice view slice view gradient_if_used");
}

TEST(gradients_of_different_groups_stay_apart) {
  Example e;
  const ValueId first = e.exp(e.x);
  const ValueId second = e.exp(first);
  e.trace.outputs = {e.average(second, kTwo, "0"), e.average(first, kTwo, "1")};
  CHECK_EQ(e.rewritten(), "exp mul all_reduce_ exp mul all_reduce_ wait_tensor wait_tensor");
}

TEST(gradients_are_sent_in_another_dtype) {
  Example e;
  e.trace.outputs = {e.average(e.exp(e.x), kTwo, "0", Dtype::kBfloat16)};
  CHECK_EQ(e.rewritten(), "exp _to_copy mul all_reduce_ wait_tensor _to_copy");
}

TEST(a_gradient_that_comes_from_outside_is_sent_first) {
  Example e;
  const ValueId other = e.exp(e.x);
  e.trace.outputs = {e.average(e.x, 1), other};
  CHECK_EQ(e.rewritten(), "mul all_reduce_ exp wait_tensor");
}

TEST(an_average_that_is_read_on_stays_where_it_is) {
  Example e;
  e.trace.outputs = {e.exp(e.average(e.exp(e.x), 1))};
  CHECK_EQ(e.rewritten(), "exp average_gradient exp");
}

TEST(parts_have_the_shapes_of_the_gradients) {
  Example e;
  const ValueId row = e.trace.add_input(tensor_type(Dtype::kFloat32, {3}), "row");
  e.trace.outputs = {e.average(row, kTwo), e.average(e.exp(e.x), kTwo)};
  const Trace result = kGradientBuckets.run(e.trace, &find_row);
  CHECK_EQ(to_string(*result.value(*result.outputs[0].get<ValueId>()).type), "cpu f32[3]");
  CHECK_EQ(to_string(*result.value(*result.outputs[1].get<ValueId>()).type), "cpu f32[4, 8]");
}

TEST(a_mark_of_several_parameters_hands_each_on) {
  Example e;
  const ValueId other = e.exp(e.x);
  const ValueId first = e.trace.add_value(e.matrix);
  const ValueId second = e.trace.add_value(e.matrix);
  BoundSymbol mark;
  mark.op = &kTogether;
  mark.arguments = {ArgumentList{e.x, other}, "0", 2, 1, Argument(), false};
  mark.results = {ArgumentList{first, second}};
  e.trace.add(std::move(mark));
  e.trace.outputs = {e.exp(second), first};
  const Trace result = kGradientMarks.run(e.trace, &find_row);
  verify(result, "test");
  CHECK_EQ(result.symbols.size(), 2U);
  CHECK(result.symbols[1].arguments[0] == Argument(other));
  CHECK(result.outputs[1] == Argument(e.x));
}

TEST(marks_hand_their_argument_on) {
  Example e;
  const ValueId marked = add_call(e.trace, kReplicated, {e.x, "0", 2, 1}, e.matrix);
  e.trace.outputs = {e.exp(marked), marked};
  const Trace result = kGradientMarks.run(e.trace, &find_row);
  verify(result, "test");
  CHECK_EQ(result.symbols.size(), 1U);
  CHECK(result.symbols[0].arguments[0] == Argument(e.x));
  CHECK(result.outputs[1] == Argument(e.x));
}

}  // namespace thunder::passes
