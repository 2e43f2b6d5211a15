#include "executors/aten/executor.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "bridge/constant.h"
#include "check.h"
#include "executors/api/lowering.h"
#include "ir/builder.h"

using thunder::executors::Executor;
using thunder::ir::ArgumentList;
using thunder::ir::CallStyle;
using thunder::ir::Dtype;
using thunder::ir::None;
using thunder::ir::Operator;
using thunder::ir::Trace;
using thunder::ir::ValueId;

namespace {

/// A row with the dispatcher's entry, as the tracer makes them.
const Operator& find(const std::string& name, const std::string& overload = "") {
  static std::map<std::string, std::unique_ptr<Operator>> rows;
  std::unique_ptr<Operator>& row = rows[name + "." + overload];
  if (row == nullptr) {
    const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
    row = std::make_unique<Operator>();
    row->name = name;
    row->overload = overload;
    for (const c10::Argument& argument : handle.schema().arguments()) {
      thunder::ir::SchemaValue& parameter = row->parameters.emplace_back();
      parameter.name = argument.name();
      parameter.type = argument.type()->str();
    }
    row->results.resize(handle.schema().returns().size());
    row->handle = new c10::OperatorHandle(handle);
  }
  return *row;
}

Trace new_trace() { return Trace("computation", std::make_shared<thunder::ir::TraceContext>()); }
thunder::ir::TypePtr floats(thunder::ir::Dims sizes) { return thunder::ir::tensor_type(Dtype::kFloat32, sizes); }

at::Tensor run(const Trace& trace, std::vector<at::Tensor> inputs) {
  static constexpr std::array<const Executor*, 1> kExecutors{&thunder::executors::aten::kExecutor};
  const auto program = thunder::executors::lower_trace(trace, kExecutors);
  std::vector<at::Tensor> outputs(program.output_count());
  program.run(std::span(inputs), std::span(outputs));
  return outputs.at(0);
}

/// The only operator of a trace with one input, applied to it and `rest`.
at::Tensor run_unary(const Operator& op, ArgumentList rest, const at::Tensor& input) {
  Trace trace = new_trace();
  ArgumentList arguments{trace.add_input(floats({2, 3}))};
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  trace.outputs = {thunder::ir::add_call(trace, op, std::move(arguments), floats({2, 3}))};
  return run(trace, {input});
}

}  // namespace

TEST(dtypes_and_optional_arguments_become_constants) {
  const at::Tensor x = at::randn({2, 3});
  const at::Tensor got =
      run_unary(find("aten::sum", "dim_IntList"), {ArgumentList{std::int64_t{1}}, true, Dtype::kFloat64}, x);
  CHECK(at::equal(got, x.sum({1}, true, at::kDouble)));
  CHECK_EQ(got.scalar_type(), at::kDouble);
}

TEST(number_in_the_place_of_a_tensor_does_not_promote) {
  const at::Tensor x = at::ones({2, 3}, at::kHalf);
  const at::Tensor got = run_unary(find("aten::mul", "Tensor"), {2.5}, x);
  CHECK_EQ(got.scalar_type(), at::kHalf);
  CHECK(at::equal(got, x * 2.5));
}

TEST(list_of_optional_tensors_indexes) {
  Trace trace = new_trace();
  const ValueId x = trace.add_input(floats({2, 3}));
  const ValueId index = trace.add_input(thunder::ir::tensor_type(Dtype::kInt64, {2}));
  trace.outputs = {
      thunder::ir::add_call(trace, find("aten::index", "Tensor"), {x, ArgumentList{None{}, index}}, floats({2, 2}))};
  const at::Tensor data = at::randn({2, 3});
  const at::Tensor columns = at::tensor({2, 0});
  CHECK(at::equal(run(trace, {data, columns}), data.index_select(1, columns)));
}

TEST(undefined_tensor_argument_is_none) {
  const at::Tensor x = at::randn({2, 3});
  const at::Tensor got = run_unary(find("aten::clamp", "Tensor"), {None{}, 0.5}, x);
  CHECK(at::equal(got, x.clamp_max(0.5)));
}

TEST(generator_of_the_context_is_drawn_from) {
  Trace trace = new_trace();
  at::Generator generator = at::detail::getDefaultCPUGenerator().clone();
  generator.set_current_seed(3);
  const auto object = thunder::bridge::add_value(*trace.context(), generator);
  const ValueId x = trace.add_input(floats({4}));
  trace.outputs = {thunder::ir::add_call(trace, find("aten::bernoulli", "p"), {x, 0.5, object}, floats({4}))};
  const at::Tensor got = run(trace, {at::zeros({4})});
  generator.set_current_seed(3);
  CHECK(at::equal(got, at::bernoulli(at::zeros({4}), 0.5, generator)));
}

TEST(tensor_constant_costs_no_instruction) {
  Trace trace = new_trace();
  const Operator constant =
      thunder::ir::parse_operator("prims::tensor_constant(Tensor constant) -> Tensor", CallStyle::kPrimitive);
  const at::Tensor value = at::randn({2, 3});
  const auto object = thunder::bridge::add_tensor(*trace.context(), value);
  const ValueId x = trace.add_input(floats({2, 3}));
  const ValueId c = thunder::ir::add_call(trace, constant, {object}, floats({2, 3}));
  trace.outputs = {thunder::ir::add_call(trace, find("aten::mul", "Tensor"), {x, c}, floats({2, 3}))};
  const at::Tensor data = at::randn({2, 3});
  CHECK(at::equal(run(trace, {data}), data * value));
}

TEST(symbol_that_nobody_claims_is_an_internal_error) {
  Trace trace = new_trace();
  const Operator unknown = thunder::ir::parse_operator("prims::unknown() -> ()", CallStyle::kPrimitive);
  thunder::ir::add_symbol(trace, unknown, {}, {});
  CHECK_THROWS(run(trace, {}), thunder::InternalError);
}
