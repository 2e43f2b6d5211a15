#pragma once

#include <vector>

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors::cpu {

/// An operation for which there is something better than PyTorch's way to run it, by itself: a kernel of ours, another
/// library. Its results may differ from PyTorch's in their last bits. In a trace it is a block, as a fusion is.
struct SingleOperation {
  const char* kind;     ///< the kind of its block
  const char* comment;  ///< the comment of its block
  bool (*takes)(const ir::BoundSymbol& symbol, const ir::Trace& trace);
  void (*lower)(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder);
};

/// A block of symbols of which each reads what the one before it gives, and the last one's results are read outside.
[[nodiscard]] ir::BoundSymbol block_of(std::vector<ir::BoundSymbol> symbols, const char* kind, const char* comment,
                                       const char* executor);

/// Makes blocks of their symbols.
void take_single_operations(ir::Trace& trace, const char* executor, bool prepacks);
/// By the block's kind; null: it is no single operation.
[[nodiscard]] const SingleOperation* find_single_operation(const ir::BoundSymbol& block);

}  // namespace thunder::executors::cpu
