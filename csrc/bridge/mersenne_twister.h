#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace thunder::bridge {

/// The generator MT19937 (M. Matsumoto, T. Nishimura, "Mersenne Twister", 1998), which PyTorch's CPU generator is.
struct MersenneTwister {
  static constexpr std::size_t kWords = 624;
  std::array<std::uint32_t, kWords> words;
  std::size_t next = kWords;  ///< the first word that was not drawn yet
};

/// Each result is whether a number of [0, 1), of 53 bits out of two draws, lies below `p`: what ATen's `bernoulli_`
/// gives, which draws one word after the other.
void fill_bernoulli(MersenneTwister& generator, double p, std::span<bool> results);

}  // namespace thunder::bridge
