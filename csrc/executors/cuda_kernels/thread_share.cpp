#include "executors/cuda_kernels/thread_share.h"

#include <algorithm>
#include <string>

namespace thunder::executors::cuda {

using fusion::KernelNode;

void ThreadShare::declare(Lines& to) {
  if (mapping_.are_neighbours) {
    to.add("const int x = threadIdx.x % ", mapping_.threads, ";");
    to.add("const int y = threadIdx.x / ", mapping_.threads, ";");
  } else {
    to.add("const int x = threadIdx.x / ", mapping_.rows, ";");
    to.add("const int y = threadIdx.x % ", mapping_.rows, ";");
  }
  const auto share = [&](std::int64_t number, const char* name) {
    return facts_.is_batched ? numbers_.any_index(number, name) : numbers_.index(number, name);
  };
  const bool may_have_tiles = !reduces_rows(kernel_) && !kernel_.domain.interleaved;
  const std::string tiles = may_have_tiles ? share(mapping_.tiles, "tiles") : "1";
  const std::string chunks = share(mapping_.chunks, "chunks");
  const std::string blocks = numbers_.index(mapping_.blocks, "blocks");
  const std::string chunk_rows = share(mapping_.chunk_rows, "chunk_rows");
  const int width = mapping_.threads * mapping_.vector * std::max(mapping_.repeats, 1);
  to.add("const Index tile = ", tiles == "1" ? "0" : "thread_block % " + tiles, ";");
  to.add("const Index part = ", tiles == "1" ? "thread_block" : "thread_block / " + tiles, ";");
  to.add("const Index first = ", tiles == "1" ? "" : join("tile * ", width, " + "), "x * ", mapping_.vector, ";");
  to.add("const bool is_first = tile == 0 && x == 0;");
  if (blocks == "1") {
    to.add("const Index begin = part * ", chunk_rows, ";");
    to.add("const Index end = min(begin + ", chunk_rows, ", row_count);");
    return;
  }
  to.add("const Index block_rows = row_count / ", blocks, ";");
  to.add("const Index begin = part / ", chunks, " * block_rows + part % ", chunks, " * ", chunk_rows, ";");
  to.add("const Index end = min(begin + ", chunk_rows, ", (part / ", chunks, " + 1) * block_rows);");
}

void ThreadShare::prefetch(Lines& to) {
  constexpr int kLine = 128;  // bytes of the cache
  constexpr int kThreadsOfMultiprocessor = 2048;
  const std::vector<const KernelNode*> loads = prefetched();
  if (loads.empty()) return;
  // Thread blocks that begin when others have ended have nothing to wait for, and prefetching would only take their
  // time.
  const int first_blocks = facts_.multiprocessors * std::max(kThreadsOfMultiprocessor / mapping_.thread_count(), 1);
  to.add("if (blockIdx.x < ", first_blocks, " && begin + y < end) {");
  to.add("const Index row = begin + y;");
  addresses_.declare_indices(to);
  for (const KernelNode* node : loads) {
    to.add("const Index ", offset_of(*node), " = ", addresses_.row_offset(over_elements(*node)), ";");
  }
  to.add("#pragma unroll");
  to.add("for (int j = 0; j < ", mapping_.repeats, "; ++j) {");
  to.add("const Index first_of_vector = first + j * ", std::int64_t{mapping_.threads} * mapping_.vector, ";");
  for (const KernelNode* node : loads) {
    const int threads = std::max(kLine / (mapping_.vector * static_cast<int>(ir::size_of(access(*node).dtype))), 1);
    to.add("if (x % ", threads, " == 0", mapping_.is_full ? "" : " && first_of_vector < columns", ") prefetch(",
           array_text(access(*node).array, access(*node).dtype), " + ", offset_at(*node, "first_of_vector"), ");");
  }
  to.add("}");
  to.add("}");
}

std::vector<const KernelNode*> ThreadShare::prefetched() const {
  std::vector<const KernelNode*> moving;
  bool has_shared = false;
  if (!reduces_rows(kernel_) || !mapping_.are_neighbours || mapping_.is_shifted || mapping_.repeats == 0) return {};
  for (const std::size_t number : passes_.elements_of(0)) {
    const KernelNode& node = kernel_.nodes[number];
    if (node.kind != KernelNode::Kind::kLoad || !loads_vectors(node)) continue;
    const bool moves = std::ranges::any_of(access(node).outer_strides, [](std::int64_t stride) { return stride != 0; });
    if (moves) moving.push_back(&node);
    has_shared = has_shared || !moves;
  }
  return has_shared ? moving : std::vector<const KernelNode*>();
}

}  // namespace thunder::executors::cuda
