#include "executors/cuda_kernels/equal_loads.h"

#include <algorithm>
#include <tuple>

namespace thunder::executors::cuda {
namespace {

using fusion::KernelNode;

auto fields_of(const fusion::BasicAccess<std::int64_t>& access) {
  return std::tie(access.array, access.dtype, access.outer_strides, access.inner_stride, access.extent, access.run,
                  access.run_stride, access.is_dense);
}

}  // namespace

fusion::SizedKernel with_loads_once(const fusion::SizedKernel& kernel) {
  fusion::SizedKernel made = kernel;
  made.nodes.clear();
  std::vector<std::uint32_t> places;  // where each node stands now
  for (KernelNode node : kernel.nodes) {
    for (std::uint32_t i = 0; i < node.operand_count; ++i) node.operands[i] = places[node.operands[i]];
    const auto is_equal = [&](const KernelNode& other) {
      return node.kind == KernelNode::Kind::kLoad && other.kind == node.kind &&
             fields_of(kernel.accesses[other.index]) == fields_of(kernel.accesses[node.index]);
    };
    const auto known = std::ranges::find_if(made.nodes, is_equal);
    places.push_back(static_cast<std::uint32_t>(known - made.nodes.begin()));
    if (known == made.nodes.end()) made.nodes.push_back(node);
  }
  return made;
}

}  // namespace thunder::executors::cuda
