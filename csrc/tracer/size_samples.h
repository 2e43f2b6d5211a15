#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/condition.h"

namespace thunder::tracer {

/// A size of the program's arguments, or one that follows from data, that may be another one at the next call.
struct SizeSymbol {
  std::int64_t traced = 0;
  std::int64_t least = 2;
  std::int64_t most = 0;   ///< zero: there is no bound
  bool is_first = false;   ///< the first size of a tensor: most often how many examples there are
  bool is_stride = false;  ///< no size, but how far rows of a tensor lie apart
  bool is_apart = false;   ///< changes by itself in a sample, also where there are many symbols
};

/// Sizes at which a program is recorded beside those that it is traced with.
struct SizeSample {
  std::vector<std::int64_t> values;   ///< by symbol
  std::optional<std::uint32_t> only;  ///< the one symbol that is not as traced
  std::vector<std::uint32_t> group;   ///< the few symbols of many that are not as traced
};

/// Samples that meet all conditions: a few in which all symbols have other values, and one for each symbol by itself,
/// or for a group of them where there are many: a program of a hundred symbols is not recorded a hundred times. Fewer
/// where no values were found that meet the conditions, which the values that were traced do.
[[nodiscard]] std::vector<SizeSample> choose_samples(std::span<const SizeSymbol> symbols,
                                                     std::span<const ir::Condition> conditions);

/// The symbols that conditions leave fewer than `least` values, as far as they name one symbol each.
[[nodiscard]] std::vector<std::uint32_t> symbols_of_few_values(std::span<const SizeSymbol> symbols,
                                                               std::span<const ir::Condition> conditions,
                                                               std::size_t least);

}  // namespace thunder::tracer
