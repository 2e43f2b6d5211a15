#pragma once

#include <cstdint>

namespace thunder {

/// The quotient, rounded up, of numbers that are not negative.
[[nodiscard]] constexpr std::int64_t divide_up(std::int64_t number, std::int64_t by) { return (number + by - 1) / by; }
/// The least multiple that is not below a number.
[[nodiscard]] constexpr std::int64_t round_up(std::int64_t number, std::int64_t multiple_of) {
  return divide_up(number, multiple_of) * multiple_of;
}

}  // namespace thunder
