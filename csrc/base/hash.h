#pragma once

#include <cstddef>
#include <cstdint>

namespace thunder {

/// Mixes `value` into `seed`; order matters.
[[nodiscard]] constexpr std::size_t hash_combine(std::size_t seed, std::size_t value) {
  std::uint64_t mixed = (seed ^ value) + 0x9e3779b97f4a7c15ULL + (std::uint64_t{seed} << 6);
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
  return mixed ^ (mixed >> 31);
}

}  // namespace thunder
