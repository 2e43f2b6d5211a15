#pragma once

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors::cpu {

/// An operation of oneDNN's that computes an activation of its result before it stores it. In a trace the two are a
/// block, as a fusion is.
struct OperationWithActivation {
  const char* kind;     ///< the kind of its block
  const char* comment;  ///< the comment of its block
  bool (*takes)(const ir::BoundSymbol& symbol, const ir::Trace& trace);
  void (*lower)(const ir::BoundSymbol& symbol, const ir::BoundSymbol& activation, const ir::Trace& trace, bool prepacks,
                runtime::ProgramBuilder& builder);
};

/// Makes blocks of such operations and the activations that alone read their results and are fused with nothing else.
void take_activations(ir::Trace& trace, const char* executor);
/// By the block's kind; null: it is none of theirs.
[[nodiscard]] const OperationWithActivation* find_with_activation(const ir::BoundSymbol& block);

}  // namespace thunder::executors::cpu
