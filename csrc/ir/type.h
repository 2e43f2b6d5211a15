#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "ir/dtype.h"
#include "ir/size.h"

namespace thunder::ir {

struct TensorType {
  Dtype dtype = Dtype::kFloat32;
  Device device;
  Layout layout = Layout::kStrided;
  bool requires_grad = false;
  Dims sizes;
  Dims strides;
  Dim storage_offset;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

/// Kinds of values that are not tensors.
enum class ScalarKind : std::uint8_t { kBool, kInt, kFloat, kComplex };

/// A Python object that the trace only hands on: a module, a generator, an argument of a prologue.
struct ObjectType {
  std::string python_type;
  friend bool operator==(const ObjectType&, const ObjectType&) = default;
};

using Type = std::variant<TensorType, ScalarKind, ObjectType>;
/// Types are immutable and shared by the values of all traces that descend from one another.
using TypePtr = std::shared_ptr<const Type>;

/// Whether sizes, strides or the offset depend on symbols.
[[nodiscard]] bool has_symbols(const TensorType& type);

[[nodiscard]] TypePtr make_type(Type type);
/// `cpu f32[2, 16]`, `int`, `object LlamaForCausalLM`.
[[nodiscard]] std::string to_string(const Type& type);
[[nodiscard]] std::size_t hash_value(const TensorType& type);
[[nodiscard]] std::size_t hash_value(const Type& type);

}  // namespace thunder::ir
