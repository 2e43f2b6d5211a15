#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

#include "transforms/rules.h"

namespace thunder::transforms {

/// The first row for this operator that applies to these arguments; null when the rule is derived.
[[nodiscard]] const GradRule* find_rule(const c10::OperatorHandle& op, const RuleCall& call);

}  // namespace thunder::transforms
