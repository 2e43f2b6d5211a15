#pragma once

#include "fusion/roles.h"
#include "ir/trace.h"

namespace thunder::fusion {

class Lowering;

/// How an operator is fused.
struct Operation {
  FusionRole (*role)(const BoundSymbol& symbol, const Trace& trace, const Target& target);
  void (*lower)(Lowering& lowering, const BoundSymbol& symbol);
};

/// Null: not fused.
[[nodiscard]] const Operation* find_operation(const ir::Operator& op);
/// The operator's role for tensors that tiles can be made of; none otherwise.
[[nodiscard]] FusionRole role_of(const BoundSymbol& symbol, const Trace& trace, const Target& target);

}  // namespace thunder::fusion
