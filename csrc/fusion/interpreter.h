#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fusion/kernel_graph.h"

namespace thunder::fusion {

/// The memory of an array, from the first element that an access may reach: integers and bools exactly, everything else
/// as double.
struct KernelArray {
  ir::Dtype dtype = ir::Dtype::kFloat32;
  std::vector<double> reals;
  std::vector<std::int64_t> integers;
};

/// Runs a kernel step by step over all of its domain, in double: every target's kernel is compared with it. `arrays`
/// are the fusion's inputs, then its results, which have their size already. False: an index is out of bounds.
[[nodiscard]] bool interpret(const SizedKernel& kernel, std::span<KernelArray> arrays);

}  // namespace thunder::fusion
