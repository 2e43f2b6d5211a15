#include "executors/cuda_kernels/simplified.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace thunder::executors::cuda {
namespace {

using fusion::KernelNode;
using Kind = KernelNode::Kind;

auto fields_of(const fusion::BasicAccess<std::int64_t>& access) {
  return std::tie(access.array, access.dtype, access.outer_strides, access.inner_stride, access.extent, access.run,
                  access.run_stride, access.is_dense);
}

/// Whether a node follows from its operands and fields alone.
bool is_computed(Kind kind) {
  switch (kind) {
    case Kind::kConstant:
    case Kind::kElement:
    case Kind::kRound:
    case Kind::kConvert:
    case Kind::kExpand:
    case Kind::kReduce:
    case Kind::kMean:
    case Kind::kVariance:
    case Kind::kPick:
    case Kind::kScatterAdd:
      return true;
    case Kind::kLoad:
    case Kind::kGather:
    case Kind::kAssemble:
    case Kind::kRandom:
    case Kind::kRatio:
    case Kind::kStore:
    case Kind::kColumnSum:
    case Kind::kColumnMoments:
    case Kind::kTotal:
      return false;
  }
  return false;
}

bool are_equal(const KernelNode& a, const KernelNode& b) {
  const auto fields = [](const KernelNode& node) {
    return std::tuple(node.kind, node.op, node.reduction, node.type, node.extent, node.dtype, node.operand_count,
                      std::bit_cast<std::int64_t>(node.number), node.integer);
  };
  return fields(a) == fields(b) && std::equal(a.operands, a.operands + a.operand_count, b.operands);
}

/// By node: whether a result needs it.
std::vector<bool> needed_nodes(const std::vector<KernelNode>& nodes) {
  std::vector<bool> needed(nodes.size(), false);
  for (std::size_t i = nodes.size(); i-- > 0;) {
    const Kind kind = nodes[i].kind;
    const bool is_result =
        kind == Kind::kStore || kind == Kind::kColumnSum || kind == Kind::kColumnMoments || kind == Kind::kTotal;
    needed[i] = needed[i] || is_result;
    for (std::uint32_t k = 0; needed[i] && k < nodes[i].operand_count; ++k) needed[nodes[i].operands[k]] = true;
  }
  return needed;
}

}  // namespace

fusion::SizedKernel simplified(const fusion::SizedKernel& kernel) {
  fusion::SizedKernel made = kernel;
  made.nodes.clear();
  const std::vector<bool> needed = needed_nodes(kernel.nodes);
  std::vector<std::uint32_t> places;  // where each node stands now
  for (std::size_t i = 0; i < kernel.nodes.size(); ++i) {
    if (!needed[i]) {
      places.push_back(0);
      continue;
    }
    KernelNode node = kernel.nodes[i];
    for (std::uint32_t k = 0; k < node.operand_count; ++k) node.operands[k] = places[node.operands[k]];
    const auto is_equal = [&](const KernelNode& other) {
      if (node.kind != other.kind) return false;
      if (is_computed(node.kind)) return are_equal(node, other);
      return node.kind == Kind::kLoad &&
             fields_of(kernel.accesses[other.index]) == fields_of(kernel.accesses[node.index]);
    };
    const auto known = std::ranges::find_if(made.nodes, is_equal);
    places.push_back(static_cast<std::uint32_t>(known - made.nodes.begin()));
    if (known == made.nodes.end()) made.nodes.push_back(node);
  }
  return made;
}

}  // namespace thunder::executors::cuda
