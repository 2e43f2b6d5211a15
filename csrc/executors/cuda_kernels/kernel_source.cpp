#include "executors/cuda_kernels/kernel_source.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "executors/cuda_kernels/kernel_part.h"
#include "executors/cuda_kernels/prelude.h"
#include "executors/cuda_kernels/registers.h"
#include "executors/cuda_kernels/row_loop.h"
#include "executors/cuda_kernels/simplified.h"
#include "executors/cuda_kernels/thread_share.h"

namespace thunder::executors::cuda {
namespace {

using fusion::KernelNode;
using fusion::SizedKernel;
using Kind = KernelNode::Kind;

/// Words of a launch's argument.
constexpr std::size_t kMostWords = 4096 / 8;

/// The text of a kernel: its parameters and functions.
class Emitter : private KernelPart {
 public:
  explicit Emitter(KernelContext& context)
      : KernelPart(context), context_(context), sums_(context.sums), shared_(context.shared), kept_(context.kept) {}

  KernelSource emit() {
    KernelSource source;
    std::string functions = fused_function();
    source.launches.push_back({facts_.name, mapping_.grid(), mapping_.thread_count()});
    if (!sums_.empty()) {
      SharedMemory shared;
      Lines body;
      const std::string name = facts_.name + "_finish";
      source.launches.push_back({name, sums_.finish(shared, body), BlockSums::kFinishThreads});
      Lines waiting;
      waiting.add("wait_for_previous();");
      waiting.append(body);
      functions += function(name, BlockSums::kFinishThreads, shared, waiting);
    }
    source.array_count = array_count();
    source.numbers = numbers_.values();
    source.scratch_bytes = sums_.scratch_bytes();
    source.overwrites_inputs = overwrites_inputs(kernel_, passes_, kept_);
    const bool is_short = has_short_offsets(kernel_, mapping_, source.scratch_bytes);
    const std::size_t arrays = std::max<std::size_t>(source.array_count, 1);
    const std::size_t numbers = std::max<std::size_t>(source.numbers.size(), 1);
    source.text =
        join("typedef ", is_short ? "int" : "long long", " Index;\n", kPrelude, "\nstruct Parameters {\n",
             "  void* arrays[", arrays, "];\n  void* scratch;\n", "  Integer numbers[", numbers, "];\n};\n\n");
    if (facts_.is_batched) {
      source.capacity = std::max<std::size_t>(kMostWords / (arrays + numbers + 2), 1);
      source.text += join("constexpr int capacity = ", source.capacity,
                          ";\nstruct Batch {\n  Integer ends[capacity];\n", "  Parameters each[capacity];\n};\n\n");
    }
    source.text += functions;
    return source;
  }

 private:
  [[nodiscard]] std::size_t array_count() const {
    std::size_t count = 0;
    const auto reach = [&](std::uint32_t number) { count = std::max<std::size_t>(count, number + 1); };
    for (const Access& access : kernel_.accesses) {
      if (access.parts.empty()) reach(access.array);
      for (const Addresses::Part& part : access.parts) reach(part.array);
    }
    for (const auto& sum : kernel_.sums) {
      if (sum.array) reach(*sum.array);
      if (sum.variance) reach(*sum.variance);
    }
    return count;
  }

  [[nodiscard]] std::string function(std::string_view name, int threads, const SharedMemory& shared, const Lines& body,
                                     int blocks_at_once = 0) {
    Lines lines;
    const std::string bounds = blocks_at_once == 0 ? "" : join(", ", blocks_at_once);
    lines.add("extern \"C\" __global__ void __launch_bounds__(", threads, bounds, ") ", name, "(const ",
              facts_.is_batched ? "__grid_constant__ Batch batch" : "Parameters p", ") {");
    lines.add("let_next_begin();");
    facts_.is_batched ? find_member(lines) : find_thread_block(lines);
    numbers_.declare(lines);
    shared.declare(lines);
    lines.append(body);
    lines.add("}");
    return lines.text();
  }

  static void find_thread_block(Lines& to) {
    to.add("const unsigned thread_block = blockIdx.x;");
    to.add("const unsigned thread_blocks = gridDim.x;");
  }

  /// Finds the member of a batch that the thread block belongs to, and its number there.
  static void find_member(Lines& to) {
    to.add("int member = 0;");
    to.add("#pragma unroll");
    to.add("for (int step = 256; step > 0; step /= 2) {");
    to.add("if (member + step < capacity && blockIdx.x >= batch.ends[member + step - 1]) member += step;");
    to.add("}");
    to.add("const Parameters& p = batch.each[member];");
    to.add("const Integer first_thread_block = member == 0 ? 0 : batch.ends[member - 1];");
    to.add("const unsigned thread_block = blockIdx.x - static_cast<unsigned>(first_thread_block);");
    to.add("const unsigned thread_blocks = static_cast<unsigned>(batch.ends[member] - first_thread_block);");
  }

  [[nodiscard]] std::string fused_function() {
    Lines body;
    const fusion::BasicDomain<std::int64_t>& domain = kernel_.domain;
    body.add("const Index columns = ", numbers_.index(domain.columns, "size"), ";");
    body.add("const Index row_count = ", numbers_.index(row_count(kernel_), "size"), ";");
    if (domain.run != 0) body.add("const Index run = ", numbers_.index(domain.run, "size"), ";");
    if (domain.interleaved) body.add("const Index height = ", numbers_.index(domain.outer.back(), "size"), ";");
    ThreadShare share(context_);
    share.declare(body);
    share.prefetch(body);
    body.add("wait_for_previous();");
    sums_.declare(body);
    for (const std::size_t kept : kept_) {
      const KernelNode& node = kernel_.nodes[kept];
      if (node.kind == Kind::kRandom) {
        body.add("RandomNumbers kept", kept, "[", mapping_.repeats, "][", mapping_.vector / kRandomTogether, "];");
      } else {
        body.add(vector_of(access(node)), " kept", kept, "[", mapping_.repeats, "];");
      }
    }
    // The compiler moves reads out of the loop, which threads without columns must not do.
    const bool skips_columns = !reduces_rows(kernel_);
    if (skips_columns) body.add("if (first < columns) {");
    RowLoop(context_).emit(body);
    if (skips_columns) body.add("}");
    sums_.write(shared_, body);
    return function(facts_.name, mapping_.thread_count(), shared_, body, mapping_.blocks_at_once);
  }

  KernelContext& context_;
  BlockSums& sums_;
  SharedMemory& shared_;
  const std::set<std::size_t>& kept_;
};

}  // namespace

std::optional<KernelSource> emit_source(const SizedKernel& kernel, const LaunchFacts& facts) {
  const auto sums_columns = [](const KernelNode& node) { return is_sum(node) && node.kind != Kind::kTotal; };
  if (row_count(kernel) * kernel.domain.columns == 0) return std::nullopt;
  if (kernel.domain.interleaved && std::ranges::any_of(kernel.nodes, sums_columns)) return std::nullopt;
  const SizedKernel simple = simplified(kernel);
  KernelContext context(simple, facts);
  return Emitter(context).emit();
}

}  // namespace thunder::executors::cuda
