#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "ir/trace.h"

namespace thunder::ir {

/// Values to put in the place of others: a value or a constant for each that is set. Not followed twice: what stands
/// in the place of a value is final.
class Substitution {
 public:
  explicit Substitution(std::size_t value_count) : replacements_(value_count) {}

  void set(ValueId from, Argument to) {
    if (index_of(from) >= replacements_.size()) replacements_.resize(index_of(from) + 1);
    replacements_[index_of(from)] = std::move(to);
  }
  /// nullptr: the value stays.
  [[nodiscard]] const Argument* find(ValueId from) const {
    if (index_of(from) >= replacements_.size() || !replacements_[index_of(from)].has_value()) return nullptr;
    return &*replacements_[index_of(from)];
  }

  void apply(Argument& argument) const;
  void apply(ArgumentList& arguments) const;
  /// Arguments and results, of the nested operations too.
  void apply(BoundSymbol& symbol) const;

 private:
  std::vector<std::optional<Argument>> replacements_;
};

}  // namespace thunder::ir
