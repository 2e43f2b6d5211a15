#include "bindings/python_rule.h"

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <list>
#include <memory>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "dispatch/python/gil.h"
#include "executors/callback/callback_executor.h"
#include "interpreter/loop/native_scope.h"
#include "tracer/recorder.h"
#include "transforms/replay.h"
#include "transforms/rule_plan.h"

namespace thunder::bindings {
namespace {

struct PythonRule {
  std::string op;
  std::string overload;
  std::string reason;
  std::shared_ptr<const void> driver;
  transforms::GradRule row;
};

at::Tensor cotangent_like(const at::Tensor& result) {
  ir::TensorType type = bridge::type_of(result);
  type.requires_grad = false;
  return tracer::recorder_on_top()->add_input(ir::make_type(std::move(type)));
}

std::size_t position_of(const at::Tensor& argument, const std::vector<at::Tensor>& trace_tensors) {
  const auto found =
      std::ranges::find_if(trace_tensors, [&](const at::Tensor& each) { return each.is_same(argument); });
  if (found == trace_tensors.end()) {
    throw UserError(ErrorKind::kValue, "put_grad: expected an argument of the operation, got another tensor");
  }
  return static_cast<std::size_t>(found - trace_tensors.begin());
}

transforms::RulePlan plan_rule(const PythonRule& rule, const std::vector<c10::IValue>& arguments) {
  transforms::RecordedInputs inputs;
  for (const at::Tensor& tensor : transforms::tensors_of_rule(arguments)) {
    ir::TensorType type = bridge::type_of(tensor);
    type.requires_grad = false;
    inputs.types.push_back(ir::make_type(std::move(type)));
  }
  const ir::Trace origin("grad_transform", std::make_shared<ir::TraceContext>());
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(rule.op.c_str(), rule.overload.c_str());
  std::size_t result_count = 0;
  std::vector<std::size_t> cotangents;
  std::vector<std::size_t> targets;
  const ir::Trace recorded =
      transforms::record(origin, "grad_transform", inputs, [&](const std::vector<at::Tensor>& trace_tensors) {
        const dispatch::GilHold gil;
        const interpreter::NativeScope native;
        const std::vector<c10::IValue> replaced = transforms::with_tensors_of_rule(arguments, trace_tensors);
        return or_pending("\n  in " + rule.reason, [&] {
          const PythonCall call = call_of(op, replaced, NumberForm::kTensor);
          const python::tuple made =
              function_in(rule.driver)(call.positional, call.keywords, python::cpp_function(&cotangent_like));
          std::vector<at::Tensor> outputs = tensors_in(made[0]);
          result_count = outputs.size();
          for (const python::handle& number : made[1]) cotangents.push_back(number.cast<std::size_t>());
          for (const python::handle& pair : made[2]) {
            targets.push_back(position_of(pair[python::int_(0)].cast<at::Tensor>(), trace_tensors));
            outputs.push_back(tensors_in(pair[python::int_(1)])[0]);
          }
          return outputs;
        });
      });
  return transforms::make_plan(recorded, result_count, std::move(cotangents), std::move(targets));
}

transforms::Tensors rule_forward(transforms::RuleCall& call) {
  const auto& rule = *static_cast<const PythonRule*>(call.rule->state);
  try {
    auto plan = std::make_shared<const transforms::RulePlan>(plan_rule(rule, call.arguments));
    call.plan = plan;
    return run_forward(call, *plan);
  } catch (const UserError& error) {
    throw UserError(error.kind(), rule.reason + ": " + error.what());
  }
}

void rule_backward(transforms::RuleCall& call) {
  run_backward(call, *static_cast<const transforms::RulePlan*>(call.plan.get()));
}

}  // namespace

const transforms::GradRule* make_rule(const std::string& executor, const ir::Operator& op,
                                      const python::object& driver) {
  static auto* const kRules = new std::list<PythonRule>;
  PythonRule& rule = kRules->emplace_back();
  rule.op = op.name;
  rule.overload = op.overload;
  rule.reason = "the grad_transform of executor '" + executor + "' for " + executors::callback::printed_name(op);
  rule.driver = share(driver);
  rule.row = {rule.op, rule.overload, rule.reason, nullptr, &rule_forward, &rule_backward, &rule};
  return &rule.row;
}

}  // namespace thunder::bindings
