#pragma once

#include <cstdint>
#include <vector>

#include "ir/layout.h"
#include "ir/trace.h"
#include "ir/uses.h"
#include "operators/facts.h"

namespace thunder::passes {

/// Gives values only, and the same ones whenever it runs on the same arguments.
[[nodiscard]] inline bool is_pure(const ir::BoundSymbol& symbol) {
  const ir::Operator& op = *symbol.op;
  return op.style == ir::CallStyle::kTorchOperator && !operators::may_have_effects(op);
}

/// Whether running the symbol may raise an error: an operation that does for data, one that asks for much memory, or
/// code that is not PyTorch's.
[[nodiscard]] bool may_raise(const ir::Trace& trace, const ir::BoundSymbol& symbol);

using ir::element_count;
using ir::is_contiguous;
using ir::is_dense;
using ir::kNoPlace;
using ir::same_layout;
using ir::size_in_bytes;

inline constexpr const char* kConstantName = "prims::tensor_constant";
[[nodiscard]] inline bool is_constant(const ir::BoundSymbol& symbol) {
  return symbol.op->style == ir::CallStyle::kPrimitive && symbol.op->name == kConstantName;
}

template <typename Visitor>
void for_each_argument(const ir::BoundSymbol& symbol, Visitor&& visit) {
  for (const ir::Argument& argument : symbol.arguments) ir::for_each_value(argument, visit);
}
template <typename Visitor>
void for_each_result(const ir::BoundSymbol& symbol, Visitor&& visit) {
  for (const ir::Argument& result : symbol.results) ir::for_each_value(result, visit);
}

/// The only result, where there is exactly one value.
[[nodiscard]] inline ir::ValueId single_result(const ir::BoundSymbol& symbol) {
  if (symbol.results.size() != 1) return ir::kNoValue;
  const auto* id = symbol.results[0].get<ir::ValueId>();
  return id == nullptr ? ir::kNoValue : *id;
}
/// Argument `i` where it is one value.
[[nodiscard]] inline ir::ValueId value_argument(const ir::BoundSymbol& symbol, std::size_t i) {
  const auto* id = i < symbol.arguments.size() ? symbol.arguments[i].get<ir::ValueId>() : nullptr;
  return id == nullptr ? ir::kNoValue : *id;
}

/// The type of a tensor value; a number is a tensor without dimensions. Null for all else.
[[nodiscard]] const ir::TensorType* operand_type(const ir::Trace& trace, ir::ValueId id);
/// Whether a type has a floating-point dtype from 16 to 64 bits; false for null, which is no tensor.
[[nodiscard]] bool is_float(const ir::TensorType* type);
/// Whether a tensor is on a GPU; false for null, which is no tensor.
[[nodiscard]] inline bool is_on_gpu(const ir::TensorType* type) {
  return type != nullptr && type->device.type == ir::DeviceType::kCuda;
}
/// The element of a list of one; any other argument as it is.
[[nodiscard]] const ir::Argument& only_of(const ir::Argument& argument);
/// The type of argument `i`; null where that is no tensor.
[[nodiscard]] const ir::TensorType* argument_type(const ir::BoundSymbol& symbol, const ir::Trace& trace, std::size_t i);
/// The type of the only result; null where there is none.
[[nodiscard]] const ir::TensorType* result_type(const ir::BoundSymbol& symbol, const ir::Trace& trace);
/// `dim` of a tensor of that rank, counted from the front.
[[nodiscard]] std::size_t wrap_dim(std::int64_t dim, std::size_t rank);

}  // namespace thunder::passes
