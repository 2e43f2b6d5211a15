#pragma once

#include <cstddef>
#include <set>

#include "executors/cuda_kernels/mapping.h"
#include "executors/cuda_kernels/row_passes.h"

namespace thunder::executors::cuda {

/// Whether a node reads vectors of elements.
[[nodiscard]] bool loads_vectors(const fusion::KernelNode& node, const fusion::SizedKernel& kernel,
                                 const Mapping& mapping, const LaunchFacts& facts);
/// Whether a node's random numbers are computed for several neighbours at a time.
[[nodiscard]] bool draws_together(const fusion::KernelNode& node, const fusion::SizedKernel& kernel,
                                  const Mapping& mapping);
/// Neighbours whose random numbers are computed together.
inline constexpr int kRandomTogether = 4;

/// Loads and random numbers that several passes need, and that stay in registers, where a row fits there.
[[nodiscard]] std::set<std::size_t> kept_in_registers(const fusion::SizedKernel& kernel, const RowPasses& passes,
                                                      const Mapping& mapping, const LaunchFacts& facts);

/// Loads of elements that a thread begins for all rows that it works on at the same time, before it computes: only
/// where there are several, and sums over them.
[[nodiscard]] std::set<std::size_t> loaded_ahead(const fusion::SizedKernel& kernel, const Mapping& mapping,
                                                 const LaunchFacts& facts);

/// Vectors of a row that a thread loads before it computes the first of them, in a pass with so many loads over a row
/// that is too long for registers; 0: none are.
[[nodiscard]] std::size_t vectors_at_once(const Mapping& mapping, std::size_t loads);

/// An estimate of the registers that a thread needs.
[[nodiscard]] int registers_of_thread(const fusion::SizedKernel& kernel, const Mapping& mapping,
                                      const LaunchFacts& facts);

}  // namespace thunder::executors::cuda
