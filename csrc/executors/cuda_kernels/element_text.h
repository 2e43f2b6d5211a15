#pragma once

#include <array>
#include <string>
#include <string_view>

#include "fusion/kernel_graph.h"

namespace thunder::executors::cuda {

/// The type of C++ that elements are computed in.
[[nodiscard]] std::string_view type_text(fusion::ComputeType type);
/// The type of C++ that elements have in memory.
[[nodiscard]] std::string_view storage_text(ir::Dtype dtype);
/// An operand of an operation, as C++.
struct OperandText {
  std::string text;  ///< empty: there is none
  fusion::ComputeType type = fusion::ComputeType::kFloat;
};
/// An operation of elements, as C++; it is computed in `type`.
[[nodiscard]] std::string operation_text(operators::ElementOp op, fusion::ComputeType type,
                                         const std::array<OperandText, 3>& operands, bool is_narrow = false);
/// A value as the narrower dtype holds it.
[[nodiscard]] std::string rounded_text(const std::string& value, fusion::ComputeType type, ir::Dtype dtype);

}  // namespace thunder::executors::cuda
