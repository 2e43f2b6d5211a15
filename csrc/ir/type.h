#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "ir/dtype.h"

namespace thunder::ir {

/// A dimension, stride or offset: a number, or a symbol of the trace with the value that it had when it was recorded.
struct Dim {
  std::int64_t hint = 0;
  std::int32_t symbol = kConcrete;

  static constexpr std::int32_t kConcrete = -1;

  Dim() = default;
  Dim(std::int64_t value) : hint(value) {}  // NOLINT(google-explicit-constructor): a number is a dimension
  [[nodiscard]] bool is_concrete() const { return symbol == kConcrete; }
  friend bool operator==(const Dim&, const Dim&) = default;
};

using Dims = std::vector<Dim>;

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

[[nodiscard]] TypePtr make_type(Type type);
/// `cpu f32[2, 16]`, `int`, `object LlamaForCausalLM`.
[[nodiscard]] std::string to_string(const Type& type);
[[nodiscard]] std::size_t hash_value(const TensorType& type);

}  // namespace thunder::ir
