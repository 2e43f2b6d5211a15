#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace thunder::philox {

/// Philox 4x32-10 (J. Salmon and others, Parallel random numbers: as easy as 1, 2, 3, 2011), as cuRAND has it: four
/// numbers of each 128-bit counter, of which the upper half is a subsequence.
[[nodiscard]] inline std::array<std::uint32_t, 4> numbers_at(std::uint64_t seed, std::uint64_t counter,
                                                             std::uint64_t subsequence) {
  auto low = static_cast<std::uint32_t>(seed);
  auto high = static_cast<std::uint32_t>(seed >> 32U);
  std::array<std::uint32_t, 4> x{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32U),
                                 static_cast<std::uint32_t>(subsequence),
                                 static_cast<std::uint32_t>(subsequence >> 32U)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53} * x[0];
    const std::uint64_t second = std::uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<std::uint32_t>(second >> 32U) ^ x[1] ^ low, static_cast<std::uint32_t>(second),
         static_cast<std::uint32_t>(first >> 32U) ^ x[3] ^ high, static_cast<std::uint32_t>(first)};
    low += 0x9E3779B9;
    high += 0xBB67AE85;
  }
  return x;
}

/// The place of an element's number: which one of the four at which counter of which subsequence.
struct Place {
  std::int64_t thread = 0;
  std::int64_t call = 0;
  std::int64_t lane = 0;
};

/// The place for the kernels of PyTorch's dropout, which `threads` threads run: each takes `width` neighbouring
/// elements at a time, or with a width of one, elements that are `threads` apart.
[[nodiscard]] inline Place place_of(std::int64_t element, std::int64_t threads, std::int64_t width) {
  if (width == 1) return {element % threads, element / threads / 4, element / threads % 4};
  const std::int64_t chunk = element / width;
  const std::int64_t rest = element % width;
  if (width == 2) return {chunk % threads, chunk / threads, rest};
  return {chunk % threads, chunk / threads * (width / 4) + rest / 4, rest % 4};
}

/// The numbers in the state of a dropout: what decides the random number of each element.
enum StateNumber : std::size_t { kSeed, kOffset, kThreads, kWidth, kStateNumbers };

/// The number of an element, above 0 and up to 1, as `curand_uniform` gives it.
[[nodiscard]] inline float uniform_at(const std::int64_t* state, std::int64_t element) {
  const Place place = place_of(element, state[kThreads], state[kWidth]);
  const auto counter = static_cast<std::uint64_t>(state[kOffset]) / 4 + static_cast<std::uint64_t>(place.call);
  const auto numbers =
      numbers_at(static_cast<std::uint64_t>(state[kSeed]), counter, static_cast<std::uint64_t>(place.thread));
  constexpr float kStep = 2.3283064e-10F;
  return std::fma(static_cast<float>(numbers[static_cast<std::size_t>(place.lane)]), kStep, kStep / 2.0F);
}

}  // namespace thunder::philox
