#include <ATen/ATen.h>

#include "check.h"
#include "ir/builder.h"
#include "ir/verifier.h"
#include "traced_operator.h"
#include "transforms/rule_plan.h"

namespace thunder::transforms {
namespace {

using check::find;

ir::TypePtr vector() { return ir::tensor_type(ir::Dtype::kFloat32, {3}); }

/// y = exp(x); the gradient of x is y * g. `late`: the result is y * g too.
ir::Trace rule(bool late) {
  ir::Trace trace("rule", std::make_shared<ir::TraceContext>());
  const ir::ValueId x = trace.add_input(vector(), "x");
  const ir::ValueId g = trace.add_input(vector(), "g");
  const ir::ValueId y = ir::add_call(trace, find("aten::exp"), {x}, vector(), "y");
  const ir::ValueId dx = ir::add_call(trace, find("aten::mul", "Tensor"), {y, g}, vector(), "dx");
  trace.outputs = {late ? dx : y, dx};
  return trace;
}

}  // namespace

TEST(rule_is_cut_where_it_needs_a_cotangent) {
  const RulePlan plan = make_plan(rule(false), 1, {0}, {0});
  ir::verify(plan.forward, "test");
  ir::verify(plan.backward, "test");
  CHECK_EQ(plan.forward.symbols.size(), std::size_t{1});
  CHECK_EQ(plan.backward.symbols.size(), std::size_t{1});
  CHECK_EQ(plan.forward.outputs.size(), std::size_t{2});  // the result, and it again as what is saved
  CHECK_EQ(plan.backward.inputs.size(), std::size_t{2});
}

TEST(halves_compute_results_and_gradients) {
  const RulePlan plan = make_plan(rule(false), 1, {0}, {0});
  RuleCall call;
  const at::Tensor x = at::randn({3}).requires_grad_();
  call.arguments = {x};
  const at::NoGradGuard no_gradients;
  const Tensors results = run_forward(call, plan);
  CHECK_EQ(results.size(), std::size_t{1});
  CHECK(at::equal(results[0], x.exp()));
  const at::Tensor cotangent = at::randn({3});
  call.cotangents = {cotangent};
  run_backward(call, plan);
  CHECK(at::equal(call.gradients.at(0), x.exp() * cotangent));
  call.gradients.clear();
  call.targets.clear();
  call.cotangents = {at::Tensor()};  // nobody asks for this result's gradient
  run_backward(call, plan);
  CHECK(at::equal(call.gradients.at(0), at::zeros({3})));
}

TEST(result_that_depends_on_its_gradient_is_refused) { CHECK_THROWS(make_plan(rule(true), 1, {0}, {0}), UserError); }

TEST(numbers_are_no_tensors_of_a_rule) {
  const at::Tensor x = at::ones({2});
  at::Tensor number = at::scalar_tensor(2.0);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  const std::vector<c10::IValue> arguments{x, number, c10::List<at::Tensor>({x, x})};
  CHECK_EQ(tensors_of_rule(arguments).size(), std::size_t{3});
  const at::Tensor y = at::zeros({2});
  const auto replaced = with_tensors_of_rule(arguments, std::vector<at::Tensor>{y, y, y});
  CHECK(replaced[0].toTensor().is_same(y));
  CHECK(replaced[1].toTensor().is_same(number));
  CHECK(replaced[2].toTensorVector()[1].is_same(y));
}

}  // namespace thunder::transforms
