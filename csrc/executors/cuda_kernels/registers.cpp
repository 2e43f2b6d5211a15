#include "executors/cuda_kernels/registers.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "base/rounding.h"

namespace thunder::executors::cuda {
namespace {

using fusion::ComputeType;
using fusion::Extent;
using fusion::KernelNode;
using fusion::SizedKernel;
using Kind = KernelNode::Kind;

/// Bytes of a row that a thread keeps in registers from one pass to the next.
constexpr std::int64_t kMostKeptBytes = 256;
constexpr std::int64_t kBytesOfRegister = 4;
/// Registers for addresses, counters and what is being computed.
constexpr std::int64_t kOtherRegisters = 16;
constexpr std::int64_t kOtherRegistersOfShifted = 44;
/// Vectors of a row too long for registers that are loaded together, as a rule.
constexpr std::int64_t kVectorsOfLongRow = 4;

std::int64_t bytes_of(const KernelNode& node, const SizedKernel& kernel) {
  return node.kind == Kind::kRandom ? static_cast<std::int64_t>(sizeof(float))
                                    : ir::size_of(kernel.accesses[node.index].dtype);
}

bool is_same_for_all_rows(const fusion::BasicAccess<std::int64_t>& access) {
  return !access.is_dense && std::ranges::all_of(access.outer_strides, [](std::int64_t stride) { return stride == 0; });
}

/// Registers of what an element adds to.
std::int64_t registers_of_sum(const KernelNode& node, const SizedKernel& kernel) {
  const ComputeType type = kernel.nodes[node.operands[0]].type;
  const std::int64_t words = type == ComputeType::kFloat ? 1 : 2;
  return node.kind == Kind::kColumnMoments ? 2 * words : words;
}

}  // namespace

bool loads_vectors(const KernelNode& node, const SizedKernel& kernel, const Mapping& mapping,
                   const LaunchFacts& facts) {
  return node.extent == Extent::kElements && (node.kind == Kind::kLoad || node.kind == Kind::kGather) &&
         is_vectorized(kernel.accesses[node.index], kernel, mapping, facts);
}

bool draws_together(const KernelNode& node, const SizedKernel& kernel, const Mapping& mapping) {
  return node.kind == Kind::kRandom && mapping.vector % kRandomTogether == 0 && kernel.domain.run == 0;
}

std::set<std::size_t> kept_in_registers(const SizedKernel& kernel, const RowPasses& passes, const Mapping& mapping,
                                        const LaunchFacts& facts) {
  std::set<std::size_t> kept;
  if (mapping.repeats == 0) return kept;
  std::map<std::size_t, int> passes_of;
  for (std::size_t pass = 0; pass < passes.count(); ++pass) {
    for (const std::size_t node : passes.elements_of(pass)) ++passes_of[node];
  }
  std::int64_t bytes = 0;
  for (const auto& [number, count] : passes_of) {
    const KernelNode& node = kernel.nodes[number];
    if (count < 2 || (!loads_vectors(node, kernel, mapping, facts) && !draws_together(node, kernel, mapping))) continue;
    bytes += std::int64_t{mapping.repeats} * mapping.vector * bytes_of(node, kernel);
    if (bytes <= kMostKeptBytes) kept.insert(number);
  }
  return kept;
}

std::set<std::size_t> loaded_ahead(const SizedKernel& kernel, const Mapping& mapping, const LaunchFacts& facts) {
  std::set<std::size_t> ahead;
  const auto sums = [](const KernelNode& node) { return is_sum(node); };
  const bool goes_over_rows = !reduces_rows(kernel) && !kernel.domain.interleaved && mapping.unrolled > 1;
  if (!goes_over_rows || std::ranges::none_of(kernel.nodes, sums)) return ahead;
  for (std::size_t i = 0; i < kernel.nodes.size(); ++i) {
    const KernelNode& node = kernel.nodes[i];
    const bool is_load = node.kind == Kind::kLoad && loads_vectors(node, kernel, mapping, facts);
    if (is_load && !is_same_for_all_rows(kernel.accesses[node.index])) ahead.insert(i);
  }
  return ahead;
}

std::size_t vectors_at_once(const Mapping& mapping, std::size_t loads) {
  constexpr std::size_t kMostLoads = 8;
  constexpr std::size_t kMostVectors = 4;
  const bool may_load_ahead = mapping.repeats == 0 && mapping.vector > 1 && loads > 0 && 2 * loads <= kMostLoads;
  return may_load_ahead ? std::min(kMostLoads / loads, kMostVectors) : 0;
}

int registers_of_thread(const SizedKernel& kernel, const Mapping& mapping, const LaunchFacts& facts) {
  const RowPasses passes(kernel, mapping.joins_sums());
  const std::int64_t repeats = std::max(mapping.repeats, 1);
  const auto kept = kept_in_registers(kernel, passes, mapping, facts);
  const auto ahead = loaded_ahead(kernel, mapping, facts);
  std::int64_t registers = mapping.has_partial_vectors() ? kOtherRegistersOfShifted : kOtherRegisters;
  std::int64_t passing = 0;  // vectors that are read and written in between
  for (std::size_t i = 0; i < kernel.nodes.size(); ++i) {
    const KernelNode& node = kernel.nodes[i];
    if (node.kind == Kind::kColumnSum || node.kind == Kind::kColumnMoments) {
      registers += repeats * mapping.vector * registers_of_sum(node, kernel);
    }
    const bool is_access = node.kind == Kind::kLoad || node.kind == Kind::kGather || node.kind == Kind::kRandom ||
                           (node.kind == Kind::kStore && passes.works_on_elements(node));
    if (!is_access || (node.kind != Kind::kStore && node.extent != Extent::kElements)) continue;
    const std::int64_t words = divide_up(mapping.vector * bytes_of(node, kernel), kBytesOfRegister);
    if (kept.contains(i)) {
      registers += repeats * words;
    } else if (ahead.contains(i)) {
      registers += mapping.unrolled * words;
    } else {
      passing += words;
    }
  }
  if (mapping.joins_sums()) registers += mapping.vector / 2 + passing * (kVectorsOfLongRow - 1);
  return static_cast<int>(registers + (reduces_rows(kernel) ? passing / 2 : passing));
}

}  // namespace thunder::executors::cuda
