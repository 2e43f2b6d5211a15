#include "transforms/rules.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/add.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "transforms/rule_lists.h"

namespace thunder::transforms {
namespace {

struct RuleTable {
  std::shared_mutex mutex;
  std::list<GradRule> added;  ///< rows keep their address
  std::unordered_map<std::string, std::vector<const GradRule*>> by_operator;
};

std::string key_of(std::string_view op, std::string_view overload) {
  return std::string(op) + "." + std::string(overload);
}

RuleTable& rule_table() {
  static auto* const kTable = [] {  // lives as long as the process: recorded calls point to its rows
    auto* table = new RuleTable;
    for (const std::span<const GradRule> list : rule_lists()) {
      for (const GradRule& rule : list) table->by_operator[key_of(rule.op, rule.overload)].push_back(&rule);
    }
    return table;
  }();
  return *kTable;
}

}  // namespace

at::Tensor RuleCall::tensor(std::size_t i) const {
  return arguments.at(i).isTensor() ? arguments[i].toTensor() : at::Tensor();
}

void RuleCall::give(const at::Tensor& target, at::Tensor gradient) {
  if (!gradient.defined() || !target.defined() || !target.requires_grad()) return;
  if (gradient.sizes() != target.sizes()) gradient = at::sum_to(std::move(gradient), target.sizes());
  if (gradient.scalar_type() != target.scalar_type()) gradient = gradient.to(target.scalar_type());
  const auto known = std::ranges::find_if(targets, [&](const at::Tensor& tensor) { return tensor.is_same(target); });
  if (known == targets.end()) {
    targets.push_back(target);
    gradients.push_back(std::move(gradient));
    return;
  }
  at::Tensor& sum = gradients[static_cast<std::size_t>(known - targets.begin())];
  sum = at::add(sum, gradient);
}

const GradRule* find_rule(const c10::OperatorHandle& op, const RuleCall& call) {
  RuleTable& rules = rule_table();
  const std::shared_lock lock(rules.mutex);
  const auto found = rules.by_operator.find(key_of(op.operator_name().name, op.operator_name().overload_name));
  if (found == rules.by_operator.end()) return nullptr;
  for (const GradRule* rule : found->second) {
    if (rule->applies == nullptr || rule->applies(call)) return rule;
  }
  return nullptr;
}

std::vector<const GradRule*> all_rules() {
  RuleTable& rules = rule_table();
  const std::shared_lock lock(rules.mutex);
  std::vector<const GradRule*> all;
  for (const auto& [key, rows] : rules.by_operator) all.insert(all.end(), rows.begin(), rows.end());
  std::ranges::sort(all, {}, [](const GradRule* rule) { return std::pair(rule->op, rule->overload); });
  return all;
}

void add_rule(GradRule rule) {
  RuleTable& rules = rule_table();
  const std::scoped_lock lock(rules.mutex);
  const GradRule& row = rules.added.emplace_back(rule);
  auto& rows = rules.by_operator[key_of(row.op, row.overload)];
  rows.insert(rows.begin(), &row);
}

}  // namespace thunder::transforms
