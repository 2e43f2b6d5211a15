#include "transforms/rule_plan.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "tracer/evaluate.h"
#include "tracer/map_tensors.h"
#include "transforms/replay.h"

namespace thunder::transforms {
namespace {

/// Marks the values that follow from cotangents.
class Dependence {
 public:
  explicit Dependence(const ir::Trace& rule) : depends_(rule.value_count(), false) {}

  void mark(ir::ValueId id) { depends_[index_of(id)] = true; }
  [[nodiscard]] bool of(ir::ValueId id) const { return depends_[index_of(id)]; }
  [[nodiscard]] bool of(const ir::ArgumentList& arguments) const {
    bool found = false;
    for (const ir::Argument& argument : arguments)
      ir::for_each_value(argument, [&](ir::ValueId id) { found |= of(id); });
    return found;
  }

 private:
  std::vector<bool> depends_;
};

/// Lists each value once.
class Crossing {
 public:
  explicit Crossing(std::size_t value_count) : listed_(value_count, false) {}
  void add(ir::ValueId id) {
    if (listed_[index_of(id)]) return;
    listed_[index_of(id)] = true;
    values.push_back(id);
  }
  std::vector<ir::ValueId> values;

 private:
  std::vector<bool> listed_;
};

bool is_of_rule(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

}  // namespace

Tensors tensors_of_rule(std::span<const c10::IValue> arguments) {
  Tensors tensors = tracer::tensors_of(arguments);
  std::erase_if(tensors, [](const at::Tensor& tensor) { return !is_of_rule(tensor); });
  return tensors;
}

std::vector<c10::IValue> with_tensors_of_rule(std::span<const c10::IValue> arguments,
                                              std::span<const at::Tensor> tensors) {
  std::size_t next = 0;
  const auto replaced = [&](const at::Tensor& tensor) { return is_of_rule(tensor) ? tensors[next++] : tensor; };
  std::vector<c10::IValue> result;
  for (const c10::IValue& argument : arguments) result.push_back(tracer::map_tensors(argument, replaced));
  return result;
}

RulePlan make_plan(const ir::Trace& rule, std::size_t result_count, std::vector<std::size_t> cotangents,
                   std::vector<std::size_t> targets) {
  const std::size_t argument_count = rule.inputs.size() - cotangents.size();
  RulePlan plan{rule.empty_copy("forward"), rule.empty_copy("backward"), {}, std::move(cotangents), std::move(targets)};
  Dependence dependence(rule);
  for (std::size_t i = argument_count; i < rule.inputs.size(); ++i) dependence.mark(rule.inputs[i]);
  Crossing crossing(rule.value_count());
  const auto cross = [&](const ir::Argument& argument) {
    ir::for_each_value(argument, [&](ir::ValueId id) {
      if (!dependence.of(id)) crossing.add(id);
    });
  };
  for (const ir::BoundSymbol& symbol : rule.symbols) {
    if (!dependence.of(symbol.arguments)) {
      plan.forward.add(symbol);
      continue;
    }
    for (const ir::Argument& result : symbol.results) {
      ir::for_each_value(result, [&](ir::ValueId id) { dependence.mark(id); });
    }
    for (const ir::Argument& argument : symbol.arguments) cross(argument);
    plan.backward.add(symbol);
  }
  const auto split = rule.outputs.begin() + static_cast<std::ptrdiff_t>(result_count);
  plan.forward.outputs.assign(rule.outputs.begin(), split);
  plan.backward.outputs.assign(split, rule.outputs.end());
  if (dependence.of(plan.forward.outputs)) {
    throw UserError(ErrorKind::kValue, "expected results that do not depend on their gradient, got one that does");
  }
  for (const ir::Argument& gradient : plan.backward.outputs) cross(gradient);
  plan.backward.inputs = crossing.values;
  plan.backward.inputs.insert(plan.backward.inputs.end(),
                              rule.inputs.begin() + static_cast<std::ptrdiff_t>(argument_count), rule.inputs.end());
  plan.forward.inputs.resize(argument_count);
  for (const ir::Argument& result : plan.forward.outputs) {
    const auto* id = result.get<ir::ValueId>();
    plan.results.push_back(id == nullptr ? nullptr : rule.value(*id).type);
  }
  for (const ir::ValueId id : crossing.values) plan.forward.outputs.emplace_back(id);
  return plan;
}

Tensors run_forward(RuleCall& call, const RulePlan& plan) {
  Tensors results = replay(plan.forward, tensors_of_rule(call.arguments));
  const auto split = results.begin() + static_cast<std::ptrdiff_t>(plan.results.size());
  call.saved.assign(split, results.end());
  results.erase(split, results.end());
  return results;
}

void run_backward(RuleCall& call, const RulePlan& plan) {
  Tensors inputs = call.saved;
  for (const std::size_t i : plan.cotangents) {
    const at::Tensor cotangent = call.cotangent(i);
    const auto& type = std::get<ir::TensorType>(*plan.results.at(i));
    inputs.push_back(
        cotangent.defined()
            ? cotangent
            : at::zeros(bridge::hints(type.sizes),
                        at::TensorOptions(bridge::to_torch(type.dtype)).device(bridge::to_torch(type.device))));
  }
  const Tensors gradients = replay(plan.backward, inputs);
  const Tensors tensors = tensors_of_rule(call.arguments);
  for (std::size_t i = 0; i < gradients.size(); ++i) call.give(tensors.at(plan.targets[i]), gradients[i]);
}

}  // namespace thunder::transforms
