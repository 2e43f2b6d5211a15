// Numbers of a Mersenne twister (Matsumoto and Nishimura, 1998), included as kernels_impl.h is.

namespace {

inline std::uint32_t twisted(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t mixed = (a & 0x80000000U) | (b & 0x7fffffffU);
  return (mixed >> 1) ^ (0x9908b0dfU & (0U - (b & 1U)));
}

/// Words depend on those 227 before them, or on the block before: farther than a vector is long.
void twist(std::uint32_t* __restrict next, const std::uint32_t* __restrict block) {
  constexpr int kLag = 397;
  constexpr int kBack = kTwisterBlock - kLag;
  for (int i = 0; i < kBack; ++i) next[i] = block[i + kLag] ^ twisted(block[i], block[i + 1]);
  for (int begin = kBack; begin < kTwisterBlock - 1; begin += kBack) {
    const int end = std::min(begin + kBack, kTwisterBlock - 1);
#pragma GCC ivdep
    for (int i = begin; i < end; ++i) next[i] = next[i - kBack] ^ twisted(block[i], block[i + 1]);
  }
  next[kTwisterBlock - 1] = next[kLag - 1] ^ twisted(block[kTwisterBlock - 1], next[0]);
}

inline std::uint32_t tempered(std::uint32_t y) {
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680U;
  y ^= (y << 15) & 0xefc60000U;
  return y ^ (y >> 18);
}

template <typename Word>
void bernoulli_loop(void* out, const std::uint32_t* words, std::uint64_t threshold, std::uint64_t one,
                    std::int64_t count) {
  auto* __restrict results = static_cast<Word*>(out);
  const auto high_threshold = static_cast<std::int32_t>(threshold >> 32);
  const auto low_threshold = static_cast<std::uint32_t>(threshold);
  constexpr std::int64_t kTile = 256;
  std::uint32_t is_less[kTile];
  for (std::int64_t begin = 0; begin < count; begin += kTile) {
    const std::int64_t size = std::min(kTile, count - begin);
    const std::uint32_t* pairs = words + 2 * begin;
    for (std::int64_t i = 0; i < size; ++i) {
      const auto high = static_cast<std::int32_t>(tempered(pairs[2 * i]) & 0x1fffffU);
      const std::uint32_t low = tempered(pairs[2 * i + 1]);
      const bool less = high < high_threshold || (high == high_threshold && low < low_threshold);
      is_less[i] = less ? 1 : 0;
    }
    for (std::int64_t i = 0; i < size; ++i) results[begin + i] = static_cast<Word>(is_less[i] != 0 ? one : 0);
  }
}

BernoulliKernel bernoulli(std::size_t element_size) {
  switch (element_size) {
    case 1:
      return &bernoulli_loop<std::uint8_t>;
    case 2:
      return &bernoulli_loop<std::uint16_t>;
    case 4:
      return &bernoulli_loop<std::uint32_t>;
    default:
      return &bernoulli_loop<std::uint64_t>;
  }
}

}  // namespace
