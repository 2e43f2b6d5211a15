#include <ATen/ATen.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "executors/api/lowering.h"
#include "executors/callback/callback_executor.h"
#include "ir/builder.h"

namespace thunder::executors::callback {
namespace {

using Kernel = std::function<at::Tensor(const at::Tensor&)>;

/// The row of an operator with one tensor, with the dispatcher's entry.
const ir::Operator* find(const std::string& name) {
  static std::map<std::string, std::unique_ptr<ir::Operator>> rows;
  std::unique_ptr<ir::Operator>& row = rows[name];
  if (row == nullptr) {
    row = std::make_unique<ir::Operator>(ir::parse_operator(name + "(Tensor self) -> Tensor"));
    row->handle = new c10::OperatorHandle(c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), ""));
  }
  return row.get();
}

void call_kernel(const void* function, const CallSite& /*site*/, std::vector<c10::IValue>& stack) {
  const bool is_list = stack.back().isTensorList();
  const at::Tensor argument = is_list ? stack.back().toTensorVector().at(0) : stack.back().toTensor();
  const at::Tensor result = (*static_cast<const Kernel*>(function))(argument);
  stack.back() = is_list ? c10::IValue(c10::List<at::Tensor>({result})) : c10::IValue(result);
}

Function make(Kernel kernel) { return std::make_shared<const Kernel>(std::move(kernel)); }

CallbackExecutor& executor_with(Kernel kernel) {
  CallbackExecutor& executor = CallbackExecutor::make("mine", &call_kernel);
  executor.add_operator(find("aten::sin"), make(std::move(kernel)));
  return executor;
}

ir::Trace sine() {
  ir::Trace trace("computation", std::make_shared<ir::TraceContext>());
  const ir::ValueId x = trace.add_input(ir::tensor_type(ir::Dtype::kFloat32, {2, 3}), "x");
  trace.outputs = {ir::add_call(trace, *find("aten::sin"), {x}, ir::tensor_type(ir::Dtype::kFloat32, {2, 3}))};
  trace.symbols.back().location = {trace.context()->intern("model.py"), 12};
  return trace;
}

at::Tensor run(const ir::Trace& trace, const CallbackExecutor& executor, at::Tensor input) {
  const std::array<const Executor*, 1> executors{&executor.row()};
  const runtime::Program program = lower_trace(trace, executors);
  std::vector<at::Tensor> inputs{std::move(input)};
  std::vector<at::Tensor> outputs(1);
  program.run(std::span(inputs), std::span(outputs));
  return outputs[0];
}

std::string failure(Kernel kernel) {
  try {
    static_cast<void>(run(sine(), executor_with(std::move(kernel)), at::ones({2, 3})));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(function_computes_the_operator_that_was_added) {
  const CallbackExecutor& executor = executor_with([](const at::Tensor& x) { return x + 1; });
  CHECK(at::equal(run(sine(), executor, at::ones({2, 3})), at::full({2, 3}, 2)));
}

TEST(operator_that_was_not_added_is_not_claimed) {
  const CallbackExecutor& executor = CallbackExecutor::make("other", &call_kernel);
  CHECK_THROWS(run(sine(), executor, at::ones({2, 3})), InternalError);
}

TEST(result_with_other_strides_is_copied) {
  const at::Tensor result =
      run(sine(), executor_with([](const at::Tensor& x) { return x.t().clone().contiguous().t(); }), at::randn({2, 3}));
  CHECK(result.is_contiguous());
}

TEST(wrong_result_names_executor_operator_and_line) {
  const std::string message = failure([](const at::Tensor& x) { return x.to(at::kDouble); });
  CHECK(contains(message, "executor 'mine': aten.sin.default: expected cpu f32[2, 3]"));
  CHECK(contains(message, "got cpu f64[2, 3]"));
  CHECK(contains(message, "model.py, line 12"));
  CHECK(contains(failure([](const at::Tensor& x) { return x.sum(); }), "got cpu f32[]"));
  CHECK(contains(failure([](const at::Tensor& x) { return x; }), "memory of its own"));
  CHECK(contains(failure([](const at::Tensor& x) { return x.view({2, 3}); }), "memory of its own"));
  CHECK(contains(failure([](const at::Tensor&) { return at::Tensor(); }), "got None"));
}

TEST(fusion_calls_the_object_of_its_trace) {
  ir::Trace trace("computation", std::make_shared<ir::TraceContext>());
  const ir::TypePtr type = ir::tensor_type(ir::Dtype::kFloat32, {2});
  const ir::ValueId x = trace.add_input(type, "x");
  const auto kernel = std::make_shared<Kernel>([](const at::Tensor& tensor) { return tensor * 3; });
  const ir::ValueId y = trace.add_value(type);
  ir::add_symbol(
      trace, *fusion_operator(),
      {trace.context()->add_object({ir::ObjectKind::kPythonObject, kernel, "mine.fusion0"}), ir::ArgumentList{x}},
      {ir::ArgumentList{y}});
  trace.outputs = {y};
  CHECK(at::equal(run(trace, CallbackExecutor::make("mine", &call_kernel), at::ones({2})), at::full({2}, 3)));
}

TEST(checker_decides_and_expansion_is_what_was_registered) {
  CallbackExecutor& executor = CallbackExecutor::make("mine", &call_kernel);
  bool agrees = false;
  executor.add_implementation(find("aten::sin"),
                              {[&](const ir::BoundSymbol&, const ir::Trace&) { return agrees; },
                               [](const ir::BoundSymbol&, const ir::Trace& trace) { return trace; }});
  const ir::Trace trace = sine();
  const Executor& row = executor.row();
  CHECK(!row.replaces(row, trace.symbols[0], trace));
  agrees = true;
  CHECK(row.replaces(row, trace.symbols[0], trace));
  CHECK_EQ(row.expand(row, trace.symbols[0], trace).symbols.size(), std::size_t{1});
  CHECK(!row.fuse(row, trace).has_value());
  executor.set_fusion_pass([](const ir::Trace& fused) { return std::make_optional(fused); });
  CHECK(row.fuse(row, trace).has_value());
}

}  // namespace thunder::executors::callback
