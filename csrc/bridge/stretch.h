#pragma once

#include <cstdint>

namespace thunder::bridge {

/// Elements that must follow one another in memory where rows are made of several stretches: the CPU executor fuses no
/// shorter ones, and what is only worth recording to be fused is recorded for no shorter ones.
inline constexpr std::int64_t kLeastStretch = 16;

}  // namespace thunder::bridge
