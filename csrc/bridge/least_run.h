#pragma once

#include <cstdint>

namespace thunder::bridge {

/// Elements that must follow one another in memory where rows are made of several runs: the CPU executor fuses no
/// shorter ones, and what is only worth recording to be fused is recorded for no shorter ones.
inline constexpr std::int64_t kLeastRun = 16;

}  // namespace thunder::bridge
