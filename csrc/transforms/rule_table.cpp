#include "transforms/rule_table.h"

#include <string>
#include <string_view>
#include <unordered_map>

#include "transforms/rule_lists.h"

namespace thunder::transforms {
namespace {

std::string key_of(std::string_view op, std::string_view overload) {
  return std::string(op) + "." + std::string(overload);
}

using RuleTable = std::unordered_map<std::string, std::vector<const GradRule*>>;  // by operator

RuleTable make_table() {
  RuleTable table;
  for (const std::span<const GradRule> list : rule_lists()) {
    for (const GradRule& rule : list) table[key_of(rule.op, rule.overload)].push_back(&rule);
  }
  return table;
}

}  // namespace

const GradRule* find_rule(const c10::OperatorHandle& op, const RuleCall& call) {
  static const RuleTable kTable = make_table();
  const auto found = kTable.find(key_of(op.operator_name().name, op.operator_name().overload_name));
  if (found == kTable.end()) return nullptr;
  for (const GradRule* rule : found->second) {
    if (rule->applies == nullptr || rule->applies(call)) return rule;
  }
  return nullptr;
}

}  // namespace thunder::transforms
