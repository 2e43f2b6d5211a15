#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ir/trace.h"

namespace thunder::fusion {

/// `prims.fused("cpu", [tensors], kind="kernel")`, a block: operations that an executor runs as one.
[[nodiscard]] const ir::Operator* fused_operator();
/// Whether the symbol is a block of that executor.
[[nodiscard]] bool is_fused_by(const ir::BoundSymbol& symbol, std::string_view executor);

/// The kind of block that a kernel graph is made of. Executors have kinds of their own besides.
inline constexpr std::string_view kKernel = "kernel";
/// The kind of block whose operations are blocks of kind `kKernel`, which need nothing of one another: see
/// `fusion/batches.h`.
inline constexpr std::string_view kBatch = "batch";
/// The kind of a block.
[[nodiscard]] std::string_view kind_of(const ir::BoundSymbol& block);
/// Whether the symbol is a block of that kind.
[[nodiscard]] bool is_kernel(const ir::BoundSymbol& symbol);
[[nodiscard]] bool is_batch(const ir::BoundSymbol& symbol);
/// The blocks that a batch holds; of any other symbol, itself.
[[nodiscard]] std::span<const ir::BoundSymbol> members_or_itself(const ir::BoundSymbol& symbol);
/// A block of operations, which reads and gives those values.
[[nodiscard]] ir::BoundSymbol make_block(std::string_view executor, std::string_view kind, ir::ArgumentList reads,
                                         ir::ArgumentList gives, std::vector<ir::BoundSymbol> operations);
/// A block of one operation, which reads its arguments and gives its results.
[[nodiscard]] ir::BoundSymbol make_block(std::string_view executor, std::string_view kind, ir::BoundSymbol operation);

/// The fused symbol alone, in a trace of its own with values numbered from zero. Tensors begin where their memory does:
/// no fusion depends on where that is, and it may be an expression of symbols on which nothing else does.
[[nodiscard]] ir::Trace region_of(const ir::BoundSymbol& fused, const ir::Trace& trace);

}  // namespace thunder::fusion
