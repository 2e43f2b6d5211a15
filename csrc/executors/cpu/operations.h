#pragma once

#include "executors/cpu/lowering.h"
#include "ir/trace.h"
#include "passes/fusion_partition.h"

namespace thunder::executors::cpu {

/// What the fuser knows of an operator.
struct Operation {
  passes::FusionRole (*role)(const ir::BoundSymbol& symbol, const ir::Trace& trace);
  void (*lower)(Lowering& lowering, const ir::BoundSymbol& symbol);
};

/// Null: not fused.
[[nodiscard]] const Operation* find_operation(const ir::Operator& op);
/// The operator's role for tensors that tiles can be made of; none otherwise.
[[nodiscard]] passes::FusionRole role_of(const ir::BoundSymbol& symbol, const ir::Trace& trace);

}  // namespace thunder::executors::cpu
