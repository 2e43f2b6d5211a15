#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace thunder::executors {

/// The source of a kernel that runs a block, and its launches, for people.
struct KernelText {
  struct Launch {
    std::string function;
    std::int64_t thread_blocks = 0;
    int threads = 0;  ///< in each thread block
    std::optional<int> registers{};
  };
  std::string beginning;  ///< the types and functions that all kernels share
  std::string text;       ///< the rest of the source; empty: there is no kernel
  std::vector<Launch> launches;
  bool is_compiled = false;
};

}  // namespace thunder::executors
