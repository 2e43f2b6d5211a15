#include "tracer/size_samples.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
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
  constexpr std::array<std::int64_t, kJointSamples + 1> kSteps{30, 46, 4200, 0, 94, 62};  // no two of many are alike
  const std::size_t count = kValues[sample].size();
  const std::int64_t value = kValues[sample][i % count] + kSteps[sample] * static_cast<std::int64_t>(i / count);
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

constexpr std::size_t kAttempts = 400;
constexpr std::size_t kDistinct = 300;  // attempts in which no symbol has a value twice: few values tell little
/// With more symbols, those that are not asked for by themselves change in so many groups.
constexpr std::size_t kMostAlone = 16;
constexpr std::size_t kGroups = 8;

class SampleChoice {
 public:
  SampleChoice(std::span<const SizeSymbol> symbols, std::span<const ir::Condition> conditions)
      : symbols_(symbols.begin(), symbols.end()), conditions_(conditions), conditions_of_(symbols.size()) {
    for (const SizeSymbol& symbol : symbols) traced_.push_back(symbol.traced);
    for (const ir::Condition& condition : conditions) {
      std::vector<std::uint32_t> named;
      ir::add_symbols(condition, named);
      for (const std::uint32_t symbol : named) conditions_of_[symbol].push_back(&condition);
    }
    for (std::uint32_t i = 0; i < symbols_.size(); ++i) draw_within_bounds(i);
  }

  std::vector<SizeSample> choose() {
    for (std::size_t sample = 0; sample < kJointSamples; ++sample) add_joint(sample);
    std::vector<std::uint32_t> together;
    for (std::uint32_t i = 0; i < symbols_.size(); ++i) {
      if (symbols_.size() > kMostAlone && !symbols_[i].is_apart) {
        together.push_back(i);
      } else {
        add_alone(i);
      }
    }
    const std::size_t size = (together.size() + kGroups - 1) / kGroups;
    for (std::size_t i = 0; i < together.size(); i += size) {
      const auto begin = together.begin() + static_cast<std::ptrdiff_t>(i);
      add_group({begin, begin + static_cast<std::ptrdiff_t>(std::min(size, together.size() - i))});
    }
    for (const std::uint32_t symbol : symbols_like_others(together)) add_alone(symbol);
    return std::move(samples_);
  }

 private:
  using Values = std::vector<std::int64_t>;

  /// Conditions that leave a symbol few values, next to one another, are hardly met by chance.
  void draw_within_bounds(std::uint32_t i) {
    constexpr std::int64_t kFew = 256;
    const ir::Dim symbol = ir::Dim::symbol(i, traced_[i]);
    std::int64_t least = symbols_[i].least;
    std::int64_t most = symbols_[i].most == 0 ? std::numeric_limits<std::int64_t>::max() : symbols_[i].most;
    for (const ir::Condition* condition : conditions_of_[i]) {
      if (condition->kind != ir::Condition::Kind::kAtMost) continue;
      const auto& [_, left, right] = *condition;
      const ir::Dim above = left - symbol, below = right - symbol;
      if (left.is_concrete() && below.is_concrete()) least = std::max(least, left.hint - below.hint);
      if (right.is_concrete() && above.is_concrete()) most = std::min(most, right.hint - above.hint);
    }
    if (most < least || most - least >= kFew) return;
    symbols_[i].least = least;
    symbols_[i].most = most;
  }
  [[nodiscard]] std::int64_t draw(std::size_t attempt, std::size_t usual, std::uint32_t i) const {
    return attempt == 0 ? sample_of(symbols_[i], usual, i) : other_sample_of(symbols_[i], attempt + 31 * usual, i);
  }
  [[nodiscard]] bool is_other(const Values& values) const {
    const auto is_there = [&](const SizeSample& sample) { return sample.values == values; };
    return values != traced_ && std::ranges::none_of(samples_, is_there);
  }
  [[nodiscard]] bool is_new(const Values& values, std::uint32_t i) const {
    const auto has_it = [&](const SizeSample& sample) { return sample.values[i] == values[i]; };
    return values[i] != traced_[i] && std::ranges::none_of(samples_, has_it);
  }
  [[nodiscard]] bool are_new(const Values& values) const {
    for (std::uint32_t i = 0; i < values.size(); ++i) {
      if (!is_new(values, i)) return false;
    }
    return true;
  }

  void add_joint(std::size_t sample) {
    for (std::size_t attempt = 0; attempt < kAttempts; ++attempt) {
      Values values;
      for (std::uint32_t i = 0; i < symbols_.size(); ++i) values.push_back(draw(attempt, sample, i));
      for (const ir::Condition& condition : conditions_) meet(condition, values);
      const auto is_met = [&](const ir::Condition& condition) { return ir::holds(condition, values); };
      if (!is_other(values) || !std::ranges::all_of(conditions_, is_met)) continue;
      if (attempt < kDistinct && !are_new(values)) continue;
      samples_.push_back({std::move(values), std::nullopt, {}});
      return;
    }
  }

  /// Gives a symbol another value, at which its conditions hold; false: none was found.
  [[nodiscard]] bool change(Values& values, std::uint32_t i) const {
    const std::int64_t before = values[i];
    const auto is_met = [&](const ir::Condition* condition) { return ir::holds(*condition, values); };
    for (std::size_t attempt = 0; attempt < kAttempts; ++attempt) {
      values[i] = draw(attempt, kJointSamples, i);
      if (!is_other(values) || !std::ranges::all_of(conditions_of_[i], is_met)) continue;
      if (attempt >= kDistinct || is_new(values, i)) return true;
    }
    values[i] = before;
    return false;
  }

  void add_alone(std::uint32_t symbol) {
    Values values = traced_;
    if (change(values, symbol)) samples_.push_back({std::move(values), symbol, {}});
  }

  void add_group(std::span<const std::uint32_t> group) {
    SizeSample sample{traced_, std::nullopt, {}};
    for (const std::uint32_t symbol : group) {
      if (change(sample.values, symbol)) sample.group.push_back(symbol);
    }
    if (sample.group.size() == 1) sample.only = std::exchange(sample.group, {})[0];
    if (is_other(sample.values)) samples_.push_back(std::move(sample));
  }

  /// Symbols that are in all samples a multiple of an earlier one, plus a number: no sample tells them apart.
  [[nodiscard]] std::vector<std::uint32_t> symbols_like_others(std::span<const std::uint32_t> symbols) const {
    std::set<Values> known;
    std::vector<std::uint32_t> alike;
    for (const std::uint32_t symbol : symbols) {
      Values differences;
      std::int64_t divisor = 0;
      for (const SizeSample& sample : samples_) {
        differences.push_back(sample.values[symbol] - traced_[symbol]);
        // With the sign of the first difference, so that multiples of one sequence have one form.
        const std::int64_t common = std::gcd(divisor, differences.back());
        divisor = divisor < 0 || (divisor == 0 && differences.back() < 0) ? -common : common;
      }
      for (std::int64_t& each : differences) each /= divisor == 0 ? 1 : divisor;
      if (!known.insert(std::move(differences)).second) alike.push_back(symbol);
    }
    return alike;
  }

  std::vector<SizeSymbol> symbols_;
  std::span<const ir::Condition> conditions_;
  std::vector<std::vector<const ir::Condition*>> conditions_of_;  ///< by symbol
  Values traced_;
  std::vector<SizeSample> samples_;
};

}  // namespace

std::vector<SizeSample> choose_samples(std::span<const SizeSymbol> symbols, std::span<const ir::Condition> conditions) {
  return SampleChoice(symbols, conditions).choose();
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
