#include "tracer/size_samples.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "ir/generalization.h"

namespace thunder::tracer {
namespace {

constexpr std::size_t kJointSamples = 5;

/// The value of symbol `i` in a sample.
std::int64_t sample_of(const SizeSymbol& symbol, std::size_t sample, std::size_t i) {
  constexpr std::array<std::array<std::int64_t, 8>, kJointSamples + 1> kValues{{
      {5, 11, 7, 17, 13, 23, 19, 29},                    // small
      {129, 113, 137, 107, 131, 103, 127, 101},          // in another order
      {4099, 1031, 2053, 1549, 3079, 1297, 2309, 1801},  // large
      {37, 37, 37, 37, 37, 37, 37, 37},                  // equal
      {38, 52, 70, 40, 62, 44, 86, 56},                  // even
      {43, 47, 53, 59, 61, 67, 71, 73},                  // where one symbol changes by itself
  }};
  const std::int64_t value = kValues[sample][i % kValues[sample].size()];
  if (symbol.most == 0) return std::max(value, symbol.least + value % 97);
  return symbol.least + value % (symbol.most - symbol.least + 1);
}

/// Numbers without a pattern, of many magnitudes, for where the usual samples do not meet the conditions.
std::int64_t other_sample_of(const SizeSymbol& symbol, std::size_t attempt, std::size_t i) {
  std::uint64_t state = (attempt * 64 + i + 1) * 0x9e3779b97f4a7c15U;
  state = (state ^ (state >> 29U)) * 0xbf58476d1ce4e5b9U;
  const std::uint64_t drawn = state >> 33U;
  // Conditions on long sequences may hold nowhere else than close to the size that was traced: the number of chunks.
  if (attempt % 6 == 3 && symbol.most == 0) {
    const auto around = std::max<std::int64_t>(4, symbol.traced >> (attempt / 6 % 16));
    return std::max(symbol.least, symbol.traced - around +
                                      static_cast<std::int64_t>(drawn % (2 * static_cast<std::uint64_t>(around) + 1)));
  }
  // A third lies around the size that was traced, since conditions hold there.
  const std::uint64_t range =
      attempt % 3 == 0 ? 2 * static_cast<std::uint64_t>(symbol.traced) : std::uint64_t{8} << (attempt % 11);
  const std::int64_t value = 2 + static_cast<std::int64_t>(drawn % range);
  if (symbol.most == 0) return std::max(value, symbol.least);
  return symbol.least + value % (symbol.most - symbol.least + 1);
}

/// The symbol that a sum is, but for a number that is added to it.
std::optional<std::uint32_t> moved_symbol(const ir::Dim& dim) {
  std::vector<std::uint32_t> symbols;
  ir::add_symbols(dim, symbols);
  const bool is_one = symbols.size() == 1 && (dim - ir::Dim::symbol(symbols[0], 0)).is_concrete();
  return is_one ? std::optional(symbols[0]) : std::nullopt;
}

/// Changes a symbol that a condition names by itself so that it holds.
void meet(const ir::Condition& condition, std::vector<std::int64_t>& values) {
  const auto left = moved_symbol(condition.left);
  if (condition.kind == ir::Condition::Kind::kDivisible && left && condition.right.is_concrete()) {
    const std::int64_t divisor = condition.right.hint;
    if (divisor <= 0) return;
    const std::int64_t rest = ir::evaluate(condition.left, values) % divisor;
    values[*left] -= rest < 0 ? rest + divisor : rest;
    if (values[*left] < 2) values[*left] += (1 + (1 - values[*left]) / divisor) * divisor;
  } else {
    ir::adjust_to(condition, values);
  }
  for (std::int64_t& value : values) value = std::max<std::int64_t>(value, 2);
}

}  // namespace

std::vector<SizeSample> choose_samples(std::span<const SizeSymbol> symbols, std::span<const ir::Condition> conditions) {
  constexpr std::size_t kAttempts = 400;
  constexpr std::size_t kDistinct = 300;  // attempts in which no symbol has a value twice: few values tell little
  std::vector<SizeSample> samples;
  std::vector<std::int64_t> traced;
  for (const SizeSymbol& symbol : symbols) traced.push_back(symbol.traced);
  const auto is_sample = [&](const std::vector<std::int64_t>& values) {
    const auto is_there = [&](const SizeSample& sample) { return sample.values == values; };
    const auto is_met = [&](const ir::Condition& condition) { return ir::holds(condition, values); };
    return values != traced && std::ranges::none_of(samples, is_there) && std::ranges::all_of(conditions, is_met);
  };
  const auto is_new = [&](const std::vector<std::int64_t>& values, std::uint32_t i) {
    const auto has_it = [&](const SizeSample& sample) { return sample.values[i] == values[i]; };
    return values[i] != traced[i] && std::ranges::none_of(samples, has_it);
  };
  const auto are_new = [&](const std::vector<std::int64_t>& values) {
    for (std::uint32_t i = 0; i < values.size(); ++i) {
      if (!is_new(values, i)) return false;
    }
    return true;
  };
  const auto draw = [&](std::size_t attempt, std::size_t usual, std::uint32_t i) {
    return attempt == 0 ? sample_of(symbols[i], usual, i) : other_sample_of(symbols[i], attempt + 31 * usual, i);
  };
  for (std::size_t sample = 0; sample < kJointSamples; ++sample) {
    for (std::size_t attempt = 0; attempt < kAttempts; ++attempt) {
      std::vector<std::int64_t> values;
      for (std::uint32_t i = 0; i < symbols.size(); ++i) values.push_back(draw(attempt, sample, i));
      for (const ir::Condition& condition : conditions) meet(condition, values);
      if (!is_sample(values) || (attempt < kDistinct && !are_new(values))) continue;
      samples.push_back({std::move(values), std::nullopt});
      break;
    }
  }
  for (std::uint32_t i = 0; i < symbols.size(); ++i) {
    for (std::size_t attempt = 0; attempt < kAttempts; ++attempt) {
      std::vector<std::int64_t> values = traced;
      values[i] = draw(attempt, kJointSamples, i);
      if (!is_sample(values) || (attempt < kDistinct && !is_new(values, i))) continue;
      samples.push_back({std::move(values), i});
      break;
    }
  }
  return samples;
}

std::vector<std::uint32_t> symbols_of_few_values(std::span<const SizeSymbol> symbols,
                                                 std::span<const ir::Condition> conditions, std::size_t least) {
  constexpr std::int64_t kAround = 128;  // bounds lie around the size that was traced
  std::vector<std::int64_t> values;
  for (const SizeSymbol& symbol : symbols) values.push_back(symbol.traced);
  std::vector<std::uint32_t> few;
  for (std::uint32_t i = 0; i < symbols.size(); ++i) {
    const auto is_of_this = [i](const ir::Condition& condition) {
      std::vector<std::uint32_t> named;
      ir::add_symbols(condition, named);
      return named == std::vector<std::uint32_t>{i};
    };
    std::vector<ir::Condition> own;
    std::ranges::copy_if(conditions, std::back_inserter(own), is_of_this);
    std::size_t count = 0;
    const std::int64_t from = std::max(symbols[i].least, symbols[i].traced - kAround);
    for (values[i] = from; values[i] <= symbols[i].traced + kAround && count < least; ++values[i]) {
      if (std::ranges::all_of(own, [&](const ir::Condition& each) { return ir::holds(each, values); })) ++count;
    }
    values[i] = symbols[i].traced;
    if (count < least) few.push_back(i);
  }
  return few;
}

}  // namespace thunder::tracer
