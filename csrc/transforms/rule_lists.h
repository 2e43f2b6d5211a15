#pragma once

#include <span>
#include <vector>

#include "transforms/rules.h"

namespace thunder::transforms {

[[nodiscard]] std::span<const GradRule> indexing_rules();    ///< rules_indexing.cpp: index_fill
[[nodiscard]] std::span<const GradRule> loss_rules();        ///< rules_loss.cpp: cross entropy
[[nodiscard]] std::span<const GradRule> network_rules();     ///< rules_network.cpp: dropout
[[nodiscard]] std::span<const GradRule> norm_rules();        ///< rules_norm.cpp: RMS norm
[[nodiscard]] std::span<const GradRule> reduction_rules();   ///< rules_reduction.cpp: prod, cumprod, …
[[nodiscard]] std::span<const GradRule> statistics_rules();  ///< rules_statistics.cpp: var, std

[[nodiscard]] inline std::vector<std::span<const GradRule>> rule_lists() {
  return {indexing_rules(), loss_rules(), network_rules(), norm_rules(), reduction_rules(), statistics_rules()};
}

}  // namespace thunder::transforms
