#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "executors/cuda_kernels/mapping.h"
#include "fusion/kernel_graph.h"

namespace thunder::executors::cuda {

/// A function of a kernel's source, and the threads that it is launched with.
struct Launch {
  std::string name;
  std::int64_t grid = 1;
  int threads = 1;
};

/// CUDA C++ for a kernel graph. Its text has no sizes: these are `numbers`, an argument of the launch. Equal texts are
/// one kernel, which fits a class of sizes. All functions take one argument: the addresses of the arrays, that of the
/// scratch memory, and the numbers. In a batch they take `capacity` ends of thread blocks, which each member begins at
/// that of the one before, then `capacity` such arguments.
struct KernelSource {
  std::string text;
  std::size_t capacity = 0;  ///< members of a batch that one launch runs; 0: it is not for batches
  std::size_t array_count = 0;
  std::vector<std::int64_t> numbers;
  std::vector<Launch> launches;  ///< one after the other
  std::int64_t scratch_bytes = 0;
  /// Every thread has read what it writes over (see `KernelGraph::overwrite`).
  bool overwrites_inputs = false;
};

/// nullopt: no kernel is made for it (of no elements, or of sums over rows that are interleaved).
[[nodiscard]] std::optional<KernelSource> emit_source(const fusion::SizedKernel& kernel, const LaunchFacts& facts);

}  // namespace thunder::executors::cuda
