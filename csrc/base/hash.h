#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace thunder {

/// Mixes `value` into `seed`; order matters.
[[nodiscard]] constexpr std::size_t hash_combine(std::size_t seed, std::size_t value) {
  std::uint64_t mixed = (seed ^ value) + 0x9e3779b97f4a7c15ULL + (std::uint64_t{seed} << 6);
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
  return mixed ^ (mixed >> 31);
}

/// FNV-1a, 64 bits: for bytes that leave the process, where it is the same on every machine.
[[nodiscard]] constexpr std::uint64_t checksum(std::string_view bytes) {
  std::uint64_t sum = 0xcbf29ce484222325ULL;
  for (const char byte : bytes) sum = (sum ^ static_cast<std::uint8_t>(byte)) * 0x100000001b3ULL;
  return sum;
}

}  // namespace thunder
