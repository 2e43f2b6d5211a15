#include "bridge/mersenne_twister.h"

#include <algorithm>
#include <cmath>

// Plain loops over a whole block of words, which the compiler turns into vectors.

namespace thunder::bridge {
namespace {

constexpr std::size_t kWords = MersenneTwister::kWords;
constexpr std::size_t kShift = 397;
constexpr int kDigits = 53;

using Block = std::array<std::uint32_t, kWords>;

[[gnu::always_inline]] inline std::uint32_t twisted(std::uint32_t first, std::uint32_t second, std::uint32_t shifted) {
  const std::uint32_t mixed = (first & 0x80000000U) | (second & 0x7fffffffU);
  return shifted ^ (mixed >> 1U) ^ ((0U - (second & 1U)) & 0x9908b0dfU);
}

[[gnu::always_inline]] inline void next_block(Block& words) {
  for (std::size_t i = 0; i < kWords - kShift; ++i) words[i] = twisted(words[i], words[i + 1], words[i + kShift]);
  for (std::size_t i = kWords - kShift; i < kWords - 1; ++i) {
    words[i] = twisted(words[i], words[i + 1], words[i + kShift - kWords]);
  }
  words[kWords - 1] = twisted(words[kWords - 1], words[0], words[kShift - 1]);
}

[[gnu::always_inline]] inline std::uint32_t tempered(std::uint32_t word) {
  word ^= word >> 11U;
  word ^= (word << 7U) & 0x9d2c5680U;
  word ^= (word << 15U) & 0xefc60000U;
  return word ^ (word >> 18U);
}

[[gnu::always_inline]] inline void fill(MersenneTwister& generator, std::uint64_t limit, std::span<bool> results) {
  std::array<std::uint32_t, kWords + 1> drawn;  // NOLINT(cppcoreguidelines-pro-type-member-init): one block at a time
  std::size_t have = 0;
  while (!results.empty()) {
    if (generator.next == kWords) {
      next_block(generator.words);
      generator.next = 0;
    }
    const std::size_t take = std::min(kWords - generator.next, 2 * results.size() - have);
    for (std::size_t i = 0; i < take; ++i) drawn[have + i] = tempered(generator.words[generator.next + i]);
    generator.next += take;
    have += take;
    bool* const out = results.data();
    for (std::size_t i = 0; i < have / 2; ++i) {
      const std::uint64_t number = (static_cast<std::uint64_t>(drawn[2 * i] & 0x1fffffU) << 32U) | drawn[2 * i + 1];
      out[i] = ((number - limit) >> 63U) != 0;
    }
    results = results.subspan(have / 2);
    if (have % 2 != 0) drawn[0] = drawn[have - 1];
    have %= 2;
  }
}

#ifdef __x86_64__
[[gnu::target("avx2")]] void fill_avx2(MersenneTwister& generator, std::uint64_t limit, std::span<bool> results) {
  fill(generator, limit, results);
}
#endif

}  // namespace

void fill_bernoulli(MersenneTwister& generator, double p, std::span<bool> results) {
  const auto limit = static_cast<std::uint64_t>(std::ceil(std::ldexp(p, kDigits)));
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) return fill_avx2(generator, limit, results);
#endif
  fill(generator, limit, results);
}

}  // namespace thunder::bridge
