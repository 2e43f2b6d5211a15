#pragma once

#include "passes/pass.h"

namespace thunder::passes {

/// Where the dense gradient of an embedding (`embedding_dense_backward`: zeros as large as the table, then its rows) is
/// added to another gradient, as for a table that is the output projection too, adds the rows to that one (`index_add`,
/// which `in_place` lets write to it). On the CPU, where `index_add` adds in order, and in float32 and float64: in a
/// lower precision, each row would be rounded to that of the sum. Tables scaled by frequency stay as they are.
[[nodiscard]] ir::Trace add_embedding_gradients(const ir::Trace& trace, FindOperator find_operator);

inline constexpr Pass kEmbeddingGradients{"embedding_gradients", &add_embedding_gradients};

}  // namespace thunder::passes
