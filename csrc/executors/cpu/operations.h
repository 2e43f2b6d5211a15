#pragma once

#include "executors/cpu/lowering.h"
#include "executors/cpu/roles.h"
#include "ir/trace.h"

namespace thunder::executors::cpu {

/// What the fuser knows of an operator.
struct Operation {
  FusionRole (*role)(const BoundSymbol& symbol, const Trace& trace);
  void (*lower)(Lowering& lowering, const BoundSymbol& symbol);
};

/// Null: not fused.
[[nodiscard]] const Operation* find_operation(const ir::Operator& op);
/// The operator's role for tensors that tiles can be made of; none otherwise.
[[nodiscard]] FusionRole role_of(const BoundSymbol& symbol, const Trace& trace);

}  // namespace thunder::executors::cpu
