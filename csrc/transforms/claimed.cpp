#include "transforms/claimed.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "tracer/trace_session.h"

namespace thunder::transforms {
namespace {

struct ClaimedTable {
  std::shared_mutex mutex;
  std::unordered_map<const ir::Operator*, ClaimedOperation> derivatives;
};

ClaimedTable& claimed_table() {
  static auto* const kTable = new ClaimedTable;
  return *kTable;
}

}  // namespace

ClaimScope::ClaimScope(FindClaimed find)
    : find_(std::move(find)), previous_(std::exchange(tracer::TraceSession::current().claims, this)) {}
ClaimScope::~ClaimScope() { tracer::TraceSession::current().claims = previous_; }

std::optional<ClaimedOperation> find_claimed(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  if (const ClaimScope* scope = tracer::TraceSession::current().claims) {
    if (auto claimed = scope->find(symbol, trace)) return claimed;
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
