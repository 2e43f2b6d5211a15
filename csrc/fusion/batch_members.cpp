#include "fusion/batch_members.h"

#include <algorithm>
#include <utility>

#include "ir/symbol_values.h"

namespace thunder::fusion {

std::vector<BatchMember> members_of(const ir::BoundSymbol& batch) {
  const std::vector<ir::ValueId> inputs = ir::distinct_values(batch.arguments);
  std::vector<BatchMember> members;
  for (const ir::BoundSymbol& kernel : batch.nested) {
    BatchMember member{&kernel, {}, ir::flat_results(kernel).size()};
    for (const ir::ValueId id : ir::distinct_values(kernel.arguments)) {
      member.inputs.push_back(static_cast<std::size_t>(std::ranges::find(inputs, id) - inputs.begin()));
    }
    members.push_back(std::move(member));
  }
  return members;
}

}  // namespace thunder::fusion
