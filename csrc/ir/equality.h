#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ir/trace.h"

namespace thunder::ir {

/// Whether both apply one operator to the same arguments.
[[nodiscard]] bool is_same_call(const BoundSymbol& left, const BoundSymbol& right);
/// Agrees with `is_same_call`.
[[nodiscard]] std::size_t hash_call(const BoundSymbol& symbol);

/// Equal down to names, lines and comments, but for contexts: files are compared by name, object constants by number.
[[nodiscard]] bool is_same(const Trace& left, const Trace& right);
/// Agrees with `is_same`.
[[nodiscard]] std::size_t hash_value(const Trace& trace);

/// A call apart from its trace: equal for calls that do the same, whatever their values are.
struct CallKey {
  CallKey() = default;
  /// `values`: those that the symbol takes, each once.
  CallKey(const BoundSymbol& symbol, std::span<const ValueId> values, const Trace& trace);

  const Operator* op = nullptr;
  ArgumentList arguments;          ///< values by their places in `types`
  std::vector<TypePtr> types;      ///< null: there is none
  std::vector<Dims> result_sizes;  ///< where they follow from data, the arguments do not tell them

  friend bool operator==(const CallKey& left, const CallKey& right);
  struct Hash {
    std::size_t operator()(const CallKey& key) const;
  };
};

}  // namespace thunder::ir
