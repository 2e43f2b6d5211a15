#include "transforms/claimed.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

namespace thunder::transforms {
namespace {

thread_local const FindClaimed* current = nullptr;

struct ClaimedTable {
  std::shared_mutex mutex;
  std::unordered_map<const ir::Operator*, ClaimedOperation> derivatives;
};

ClaimedTable& claimed_table() {
  static auto* const kTable = new ClaimedTable;
  return *kTable;
}

}  // namespace

ClaimScope::ClaimScope(FindClaimed find) : find_(std::move(find)), previous_(std::exchange(current, &find_)) {}
ClaimScope::~ClaimScope() { current = previous_; }

std::optional<ClaimedOperation> find_claimed(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  if (current != nullptr) {
    if (auto claimed = (*current)(symbol, trace)) return claimed;
  }
  ClaimedTable& known = claimed_table();
  const std::shared_lock lock(known.mutex);
  const auto found = known.derivatives.find(symbol.op);
  return found == known.derivatives.end() ? std::nullopt : std::make_optional(found->second);
}

void set_derivative(const ir::Operator* op, ClaimedOperation how) {
  ClaimedTable& known = claimed_table();
  const std::scoped_lock lock(known.mutex);
  known.derivatives.insert_or_assign(op, std::move(how));
}

}  // namespace thunder::transforms
