#include "ir/equality.h"

#include <algorithm>
#include <functional>
#include <string>

#include "base/hash.h"

namespace thunder::ir {
namespace {

bool is_same(const TypePtr& left, const TypePtr& right) {
  return left == right || (left != nullptr && right != nullptr && *left == *right);
}

bool is_same(const SourceLocation& left, const SourceLocation& right) {
  if (left.line != right.line || (left.file == nullptr) != (right.file == nullptr)) return false;
  return left.file == right.file || *left.file == *right.file;
}

bool is_same(const BoundSymbol& left, const BoundSymbol& right) {
  return is_same_call(left, right) && identical(left.results, right.results) &&
         is_same(left.location, right.location) && left.comment == right.comment &&
         std::ranges::equal(left.nested, right.nested, [](const auto& a, const auto& b) { return is_same(a, b); });
}

std::size_t hash_type(const TypePtr& type) { return type == nullptr ? 0 : hash_value(*type); }

std::size_t hash_list(std::size_t hash, const ArgumentList& list) {
  for (const Argument& argument : list) hash = hash_combine(hash, hash_value(argument));
  return hash;
}

}  // namespace

bool is_same_call(const BoundSymbol& left, const BoundSymbol& right) {
  return left.op == right.op && identical(left.arguments, right.arguments);
}

std::size_t hash_call(const BoundSymbol& symbol) {
  return hash_list(reinterpret_cast<std::uintptr_t>(symbol.op), symbol.arguments);
}

bool is_same(const Trace& left, const Trace& right) {
  if (left.kind() != right.kind() || left.name() != right.name() || left.history() != right.history()) return false;
  if (left.inputs != right.inputs || left.memory_of_inputs != right.memory_of_inputs) return false;
  if (left.conditions != right.conditions) return false;
  if (left.value_count() != right.value_count() || !identical(left.outputs, right.outputs)) return false;
  for (std::uint32_t i = 0; i < left.value_count(); ++i) {
    const Value& a = left.value(ValueId{i});
    const Value& b = right.value(ValueId{i});
    if (a.name != b.name || !is_same(a.type, b.type)) return false;
  }
  return std::ranges::equal(left.symbols, right.symbols, [](const auto& a, const auto& b) { return is_same(a, b); });
}

std::size_t hash_value(const Trace& trace) {
  std::size_t hash = std::hash<std::string>{}(trace.name());
  for (std::uint32_t i = 0; i < trace.value_count(); ++i) {
    hash = hash_combine(hash, hash_type(trace.value(ValueId{i}).type));
  }
  for (const BoundSymbol& symbol : trace.symbols) {
    hash = hash_list(hash_combine(hash, hash_call(symbol)), symbol.results);
    hash = hash_combine(hash, static_cast<std::size_t>(symbol.location.line));
  }
  return hash_list(hash, trace.outputs);
}

CallKey::CallKey(const BoundSymbol& symbol, std::span<const ValueId> values, const Trace& trace)
    : op(symbol.op), arguments(symbol.arguments) {
  for (Argument& argument : arguments) {
    for_each_value(argument, [&](ValueId& id) {
      id = ValueId{static_cast<std::uint32_t>(std::ranges::find(values, id) - values.begin())};
    });
  }
  for (const ValueId id : values) types.push_back(trace.value(id).type);
  for (const Argument& result : symbol.results) {
    for_each_value(result, [&](ValueId id) {
      if (const TensorType* type = trace.tensor_type(id)) result_sizes.push_back(type->sizes);
    });
  }
}

bool operator==(const CallKey& left, const CallKey& right) {
  return left.op == right.op && identical(left.arguments, right.arguments) && left.result_sizes == right.result_sizes &&
         std::ranges::equal(left.types, right.types, [](const auto& a, const auto& b) { return is_same(a, b); });
}

std::size_t CallKey::Hash::operator()(const CallKey& key) const {
  std::size_t hash = hash_list(reinterpret_cast<std::uintptr_t>(key.op), key.arguments);
  for (const TypePtr& type : key.types) hash = hash_combine(hash, hash_type(type));
  return hash;
}

}  // namespace thunder::ir
