#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ir/trace.h"
#include "transforms/rules.h"

namespace thunder::transforms {

/// An operation that an executor runs itself: it stays in the forward trace as the program called it, and this is how
/// it is differentiated.
struct ClaimedOperation {
  std::string executor;
  const GradRule* rule = nullptr;              ///< null: derived
  const ir::Operator* derived_from = nullptr;  ///< from the autograd layer of this operator
};

using FindClaimed =
    std::function<std::optional<ClaimedOperation>(const ir::BoundSymbol& symbol, const ir::Trace& trace)>;

/// While alive, differentiation on this thread asks `find`.
class ClaimScope {
 public:
  explicit ClaimScope(FindClaimed find);
  ~ClaimScope();
  ClaimScope(const ClaimScope&) = delete;
  ClaimScope& operator=(const ClaimScope&) = delete;
  [[nodiscard]] std::optional<ClaimedOperation> find(const ir::BoundSymbol& symbol, const ir::Trace& trace) const {
    return find_(symbol, trace);
  }

 private:
  FindClaimed find_;
  const ClaimScope* previous_;
};

/// The answer of the scope, or else the one of `set_derivative`.
[[nodiscard]] std::optional<ClaimedOperation> find_claimed(const ir::BoundSymbol& symbol, const ir::Trace& trace);

/// Whoever runs it, `op` is differentiated in this way.
void set_derivative(const ir::Operator* op, ClaimedOperation how);

}  // namespace thunder::transforms
