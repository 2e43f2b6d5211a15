#include "ir/type.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "base/hash.h"

namespace thunder::ir {
namespace {

std::string_view python_name(ScalarKind kind) {
  switch (kind) {
    case ScalarKind::kBool:
      return "bool";
    case ScalarKind::kInt:
      return "int";
    case ScalarKind::kFloat:
      return "float";
    case ScalarKind::kComplex:
      return "complex";
  }
  return "number";
}

std::string to_string(const TensorType& type) {
  std::string text{torch_name(type.device.type)};
  if (type.device.index >= 0) text += ":" + std::to_string(type.device.index);
  text += ' ';
  if (type.layout != Layout::kStrided) text.append(torch_name(type.layout)) += ' ';
  text.append(short_name(type.dtype)) += '[';
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    if (i > 0) text += ", ";
    text += to_string(type.sizes[i]);
  }
  return text += ']';
}

std::size_t hash_dim(std::size_t seed, const Dim& dim) {
  return hash_combine(hash_combine(seed, static_cast<std::size_t>(dim.is_concrete() ? dim.hint : 0)),
                      reinterpret_cast<std::uintptr_t>(dim.expression));
}

}  // namespace

bool has_symbols(const TensorType& type) {
  const auto is_number = [](const Dim& dim) { return dim.is_concrete(); };
  return !std::ranges::all_of(type.sizes, is_number) || !std::ranges::all_of(type.strides, is_number) ||
         !is_number(type.storage_offset);
}

TypePtr make_type(Type type) { return std::make_shared<const Type>(std::move(type)); }

std::string to_string(const Type& type) {
  if (const auto* tensor = std::get_if<TensorType>(&type)) return to_string(*tensor);
  if (const auto* kind = std::get_if<ScalarKind>(&type)) return std::string{python_name(*kind)};
  return "object " + std::get<ObjectType>(type).python_type;
}

std::size_t hash_value(const TensorType& type) {
  std::size_t hash = static_cast<std::size_t>(type.dtype) | static_cast<std::size_t>(type.device.type) << 8 |
                     static_cast<std::size_t>(static_cast<std::uint8_t>(type.device.index)) << 16 |
                     static_cast<std::size_t>(type.layout) << 24 | static_cast<std::size_t>(type.requires_grad) << 32 |
                     type.sizes.size() << 40;
  for (const Dim& size : type.sizes) hash = hash_dim(hash, size);
  for (const Dim& stride : type.strides) hash = hash_dim(hash, stride);
  return hash_dim(hash, type.storage_offset);
}

std::size_t hash_value(const Type& type) {
  if (const auto* tensor = std::get_if<TensorType>(&type)) return hash_value(*tensor);
  return std::hash<std::string>{}(to_string(type));
}

}  // namespace thunder::ir
