#include <array>
#include <random>

#include "bridge/mersenne_twister.h"
#include "check.h"

using thunder::bridge::MersenneTwister;

namespace {

/// The state that the standard's generator begins with.
MersenneTwister seeded(std::uint32_t seed) {
  MersenneTwister generator;
  generator.words[0] = seed;
  for (std::uint32_t i = 1; i < MersenneTwister::kWords; ++i) {
    const std::uint32_t before = generator.words[i - 1];
    generator.words[i] = 1812433253U * (before ^ (before >> 30U)) + i;
  }
  return generator;
}

}  // namespace

TEST(numbers_of_two_words_lie_below_the_probability_as_those_of_the_standard_library) {
  constexpr double kProbability = 0.4;
  std::mt19937 theirs(11);
  MersenneTwister ours = seeded(11);
  for (const std::size_t count : {1U, 311U, 700U, 5U}) {  // calls end within blocks and at their ends
    std::array<bool, 700> got{};
    thunder::bridge::fill_bernoulli(ours, kProbability, std::span(got).first(count));
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t high = theirs();
      const std::uint64_t bits = ((high << 32U) | theirs()) & ((std::uint64_t{1} << 53U) - 1);
      CHECK_EQ(got[i], static_cast<double>(bits) * 0x1p-53 < kProbability);
    }
  }
}

TEST(nothing_is_drawn_for_no_results) {
  MersenneTwister generator = seeded(1);
  thunder::bridge::fill_bernoulli(generator, 0.5, {});
  CHECK_EQ(generator.next, MersenneTwister::kWords);
}
