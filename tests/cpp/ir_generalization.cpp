#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "ir/builder.h"
#include "ir/generalization.h"
#include "ir/trace_sizes.h"

namespace thunder::ir {
namespace {

const Dim kRows = Dim::symbol(0, 24);
const Dim kColumns = Dim::symbol(1, 96);

const Operator& view_operator() {
  static const Operator kOperator = parse_operator("test::view(Tensor self, SymInt[] size) -> Tensor");
  return kOperator;
}

Trace program(const std::vector<Dim>& sizes) {
  Trace trace("test", std::make_shared<TraceContext>());
  const ValueId x = trace.add_input(tensor_type(Dtype::kFloat32, {kRows, kColumns}));
  ArgumentList shape(sizes.begin(), sizes.end());
  trace.outputs = {
      add_call(trace, view_operator(), {x, Argument(std::move(shape))}, tensor_type(Dtype::kFloat32, sizes))};
  return trace;
}

SizeFit fit_for(const Trace& trace) {
  SizeFit fit(sample_sizes(trace));
  fit.add_all(trace);
  return fit;
}

std::string found(SizeFit& fit, const Dim& dim) {
  std::vector<std::int64_t> numbers;
  for (const auto& sample : fit.samples()) numbers.push_back(evaluate(dim, sample));
  const auto result = fit.find(numbers);
  return result ? to_string(*result) : "nothing";
}

}  // namespace

TEST(numbers_are_the_expressions_that_they_were_computed_by) {
  const Trace trace = program({kRows, floor_divide(kColumns, 4), 4});
  SizeFit fit = fit_for(trace);
  for (const Dim& dim :
       {Dim(7), kRows, kColumns * Dim(64) + Dim(3), kRows * kColumns, kRows * kColumns * Dim(4), kRows + kColumns,
        kColumns - kRows, floor_divide(kColumns, 4), floor_divide(kColumns, 4) * kRows}) {
    CHECK_EQ(found(fit, dim), to_string(dim));
  }
  CHECK_EQ(found(fit, floor_divide(kRows * kColumns, 7)), "nothing");
}

TEST(a_trace_at_several_sizes_becomes_the_trace_that_it_was) {
  const Trace trace = program({kRows * kColumns});
  SizeFit fit = fit_for(trace);
  std::vector<Trace> traces;
  for (const auto& sample : fit.samples()) traces.push_back(at_sizes(trace, sample));
  const Trace result = generalize(traces, fit, [](ObjectConstant, ObjectConstant) { return false; });
  CHECK_EQ(to_string(*result.tensor_type(ValueId{1})), to_string(*trace.tensor_type(ValueId{1})));
  CHECK(result.symbols[0].arguments[1] == trace.symbols[0].arguments[1]);
}

TEST(traces_that_differ_are_refused_with_the_operation) {
  const Trace trace = program({kRows * kColumns});
  SizeFit fit = fit_for(trace);
  std::vector<Trace> traces;
  for (const auto& sample : fit.samples()) traces.push_back(at_sizes(trace, sample));
  traces.back().symbols[0].arguments[1] = Argument(ArgumentList{3, 5});
  std::string message;
  try {
    static_cast<void>(generalize(traces, fit, [](ObjectConstant, ObjectConstant) { return false; }));
  } catch (const UserError& error) {
    message = error.what();
  }
  CHECK(message.find("test::view") != std::string::npos);
}

TEST(samples_meet_the_conditions) {
  Trace trace = program({kRows * kColumns});
  trace.conditions.push_back({Condition::Kind::kAtMost, kRows, Dim(64)});
  const SizeSamples samples = sample_sizes(trace);
  CHECK(samples.size() >= 5);
  for (const auto& sample : samples) CHECK(sample[0] <= 64);
  trace.conditions.push_back({Condition::Kind::kEqual, kRows * kRows, Dim(576)});
  CHECK(sample_sizes(trace).empty());
}

TEST(sizes_that_may_be_one_become_conditions) {
  Trace trace = program({kRows, kColumns - Dim(1)});
  require_sizes_of_two(trace, Trace(trace));
  CHECK_EQ(trace.conditions.size(), 1U);
  CHECK_EQ(to_string(trace.conditions[0]), "2 <= s1 - 1");
  CHECK_EQ(least_value(kRows * kColumns + Dim(3)).value_or(0), 7);
  CHECK(!least_value(kRows - kColumns).has_value());
}

}  // namespace thunder::ir
