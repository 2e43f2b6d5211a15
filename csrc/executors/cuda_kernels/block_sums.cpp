#include "executors/cuda_kernels/block_sums.h"

#include <algorithm>

#include "base/rounding.h"
#include "executors/cuda_kernels/addresses.h"
#include "executors/cuda_kernels/element_text.h"

namespace thunder::executors::cuda {
namespace {

using fusion::ComputeType;
using fusion::KernelNode;
using Kind = KernelNode::Kind;

constexpr int kFinishColumns = 8;
constexpr int kFinishShares = BlockSums::kFinishThreads / kFinishColumns;
constexpr int kSharesAtOnce = 8;
constexpr std::int64_t kAlignment = 16;
/// Elements between the columns of a vector in shared memory, so that threads which add neighbours read other banks.
constexpr int kBanksApart = 4;

std::string shared_as(const std::string& type) { return join("reinterpret_cast<", type, "*>(shared)"); }

}  // namespace

void SharedMemory::need(std::int64_t bytes) { bytes_ = std::max(bytes_, bytes); }

void SharedMemory::declare(Lines& lines) const {
  if (bytes_ > 0) lines.add("__shared__ double shared[", (bytes_ + 7) / 8, "];");
}

std::int64_t BlockSums::Sum::bytes() const { return node->kind == Kind::kColumnMoments ? 24 : 8; }
std::string BlockSums::Sum::shares() const {
  return join("reinterpret_cast<", type, "*>(static_cast<char*>(p.scratch) + ", begin, ")");
}

BlockSums::BlockSums(const fusion::SizedKernel& kernel, const Mapping& mapping, const RowPasses& passes,
                     Numbers& numbers)
    : kernel_(kernel), mapping_(mapping), passes_(passes), numbers_(numbers) {
  for (const KernelNode& node : kernel.nodes) {
    if (!is_sum(node)) continue;
    sums_.push_back({&node, join("sum", sums_.size()), type_of(node), numbers.index(scratch_bytes_, "scratch")});
    const Sum& sum = sums_.back();
    const std::int64_t places = sum.is_total() ? mapping.grid() : share_count() * kernel.domain.columns;
    scratch_bytes_ += round_up(places * sum.bytes(), kAlignment);
  }
}

std::string BlockSums::type_of(const KernelNode& node) const {
  const ComputeType type = passes_.operand(node).type;
  const std::string plain = type == ComputeType::kBool ? "Integer" : std::string(type_text(type));
  return node.kind == Kind::kColumnMoments ? join("Moments<", plain, ">") : plain;
}

/// The type that a sum is scaled in.
ComputeType BlockSums::real_type(const Sum& sum) const {
  const bool is_double = passes_.operand(*sum.node).type == ComputeType::kDouble;
  return is_double ? ComputeType::kDouble : ComputeType::kFloat;
}

void BlockSums::declare(Lines& to) const {
  if (has_moments()) to.add("int taken = 0;");
  for (const Sum& sum : sums_) {
    if (sum.is_total()) {
      to.add(sum.type, " ", sum.accumulator, " = 0;");
    } else {
      to.add(sum.type, " ", sum.accumulator, "[", mapping_.repeats, "][", mapping_.vector, "] = {};");
    }
  }
}

bool BlockSums::has_moments() const {
  return std::ranges::any_of(sums_, [](const Sum& sum) { return sum.node->kind == Kind::kColumnMoments; });
}

void BlockSums::begin_row(Lines& to) const {
  if (!has_moments()) return;
  const auto is_double = [&](const Sum& sum) { return real_type(sum) == ComputeType::kDouble; };
  const std::string real =
      std::string(type_text(std::ranges::any_of(sums_, is_double) ? ComputeType::kDouble : ComputeType::kFloat));
  to.add("taken += is_row;");
  to.add("const ", real, " share = reciprocal(static_cast<", real, ">(taken));");
}

void BlockSums::add(const KernelNode& node, Lines& to) const {
  const Sum& sum = *std::ranges::find(sums_, &node, &Sum::node);
  const std::string place =
      sum.is_total() ? sum.accumulator : join(sum.accumulator, "[j][", mapping_.vector == 1 ? "0" : "e", "]");
  const std::string condition = passes_.works_on_elements(node) ? "is_row" : "is_row && is_first";
  const std::string value =
      join("static_cast<", node.kind == Kind::kColumnMoments ? "decltype(" + place + ".mean)" : sum.type, ">(v",
           node.operands[0], ")");
  if (node.kind == Kind::kColumnMoments) {
    const std::string real = join("decltype(", place, ".mean)");
    to.add("if (", condition, ") ", place, ".take(", value, ", static_cast<", real, ">(share));");
  } else {
    to.add("if (", condition, ") ", place, " = add(", place, ", ", value, ");");
  }
}

void BlockSums::write(SharedMemory& shared, Lines& to) {
  for (const Sum& sum : sums_) {
    if (!sum.is_total()) {
      write_columns(sum, shared, to);
      continue;
    }
    shared.need(mapping_.thread_count());
    to.add(sum.accumulator, " = reduce_neighbours<Sum, ", mapping_.thread_count(), ", 1>(", sum.accumulator, ", ",
           shared_as(sum.type), ");");
    to.add("if (threadIdx.x == 0) ", sum.shares(), "[thread_block] = ", sum.accumulator, ";");
  }
}

void BlockSums::write_columns(const Sum& sum, SharedMemory& shared, Lines& to) const {
  if (mapping_.rows > 1) return write_columns_of_rows(sum, shared, to);
  to.add("#pragma unroll");
  to.add("for (int j = 0; j < ", mapping_.repeats, "; ++j) {");
  to.add("#pragma unroll");
  to.add("for (int e = 0; e < ", mapping_.vector, "; ++e) {");
  to.add("const Index column = first + j * ", mapping_.threads * mapping_.vector, " + e;");
  to.add(sum.type, " all = ", sum.accumulator, "[j][e];");
  if (sum.node->kind == Kind::kColumnMoments) to.add("all.count = taken;");
  to.add("if (column < columns) ", sum.shares(), "[part * columns + column] = all;");
  to.add("}");
  to.add("}");
}

/// Threads put a vector of sums each into shared memory, and then add, column by column, those of the thread block's
/// rows.
void BlockSums::write_columns_of_rows(const Sum& sum, SharedMemory& shared, Lines& to) const {
  const int width = mapping_.threads * mapping_.vector;
  const int step = mapping_.thread_count() + kBanksApart;
  shared.need(std::int64_t{mapping_.vector} * step * sum_bytes(sum));
  to.add("#pragma unroll");
  to.add("for (int j = 0; j < ", mapping_.repeats, "; ++j) {");
  to.add(sum.type, "* const given = ", shared_as(sum.type), ";");
  to.add("#pragma unroll");
  to.add("for (int e = 0; e < ", mapping_.vector, "; ++e) {");
  if (sum.node->kind == Kind::kColumnMoments) to.add(sum.accumulator, "[j][e].count = taken;");
  to.add("given[e * ", step, " + threadIdx.x] = ", sum.accumulator, "[j][e];");
  to.add("}");
  to.add("__syncthreads();");
  to.add("for (int i = threadIdx.x; i < ", width, "; i += ", mapping_.thread_count(), ") {");
  to.add("const ", sum.type, "* const own = given + i % ", mapping_.vector, " * ", step, " + i / ", mapping_.vector,
         ";");
  to.add(sum.type, " all = own[0];");
  to.add("#pragma unroll");
  to.add("for (int k = 1; k < ", mapping_.rows, "; ++k) all = Sum::of(all, own[k * ", mapping_.threads, "]);");
  to.add("const Index column = first - x * ", mapping_.vector, " + j * ", width, " + i;");
  to.add("if (column < columns) ", sum.shares(), "[part * columns + column] = all;");
  to.add("}");
  to.add("__syncthreads();");
  to.add("}");
}

/// The bytes of one thread's sum of a column.
std::int64_t BlockSums::sum_bytes(const Sum& sum) const {
  const bool is_float = passes_.operand(*sum.node).type == ComputeType::kFloat;
  const std::int64_t word = is_float ? 4 : 8;
  return sum.node->kind == Kind::kColumnMoments ? 3 * word : word;
}

std::int64_t BlockSums::finish(SharedMemory& shared, Lines& to) {
  to.add("const Index columns = ", numbers_.index(kernel_.domain.columns, "size"), ";");
  std::int64_t grid = 0;
  for (const Sum& sum : sums_) {
    if (sum.is_total()) continue;
    const std::int64_t results = kernel_.sums[sum.node->index].blocks * kernel_.domain.columns;
    const std::int64_t end = grid + divide_up(results, kFinishColumns);
    const std::string begin = grid == 0 ? "0" : numbers_.any_index(grid, "begin");
    to.add("if (thread_block >= ", begin, " && thread_block < ", numbers_.any_index(end, "end"), ") {");
    to.add("const Index own_block = static_cast<Index>(thread_block) - ", begin, ";");
    finish_columns(sum, shared, to);
    to.add("}");
    grid = end;
  }
  if (std::ranges::none_of(sums_, &Sum::is_total)) return grid;
  to.add("if (thread_block == thread_blocks - 1) {");
  finish_totals(shared, to);
  to.add("}");
  return grid + 1;
}

/// A thread reads several shares before it adds the first of them.
void BlockSums::finish_columns(const Sum& sum, SharedMemory& shared, Lines& to) {
  const auto& result = kernel_.sums[sum.node->index];
  shared.need(kFinishThreads * sum.bytes());
  to.add("const Index place = own_block * ", kFinishColumns, " + threadIdx.x % ", kFinishColumns, ";");
  to.add("const Index shares = ", numbers_.any_index(share_count() / result.blocks, "shares"), ";");
  to.add("const bool is_result = place < ", numbers_.index(result.blocks * kernel_.domain.columns, "results"), ";");
  to.add("const Index block = is_result ? place / columns : 0;");
  to.add(sum.type, " all = {};");
  to.add("for (Index begin = threadIdx.x / ", kFinishColumns,
         "; begin < shares; begin += ", kFinishShares * kSharesAtOnce, ") {");
  to.add(sum.type, " given[", kSharesAtOnce, "];");
  to.add("#pragma unroll");
  to.add("for (int k = 0; k < ", kSharesAtOnce, "; ++k) {");
  to.add("const Index i = begin + k * ", kFinishShares, ";");
  to.add("if (is_result && i < shares) given[k] = read(", sum.shares(),
         " + (block * shares + i) * columns + place % columns); else given[k] = {};");
  to.add("}");
  to.add("#pragma unroll");
  to.add("for (int k = 0; k < ", kSharesAtOnce, "; ++k) all = add(all, given[k]);");
  to.add("}");
  to.add("all = reduce_apart<Sum, ", kFinishShares, ", ", kFinishColumns, ">(all, ", shared_as(sum.type), ");");
  to.add("if (is_result && threadIdx.x < ", kFinishColumns, ") {");
  store_columns(sum, to);
  to.add("}");
}

void BlockSums::store_columns(const Sum& sum, Lines& to) {
  const auto& result = kernel_.sums[sum.node->index];
  const auto store = [&](std::uint32_t number, const std::string& text) {
    to.add(array_text(number, result.dtype), "[place] = Stored<", storage_text(result.dtype), ">::of(", text, ");");
  };
  const std::string scale = result.scale == 1 ? "" : join(" * ", numbers_.real(result.scale, real_type(sum)));
  if (sum.node->kind == Kind::kColumnSum) return store(result.array.value(), join("all", scale));
  if (result.array) store(*result.array, "all.mean");
  if (result.variance) store(*result.variance, join("all.squares / all.count", scale));
}

/// A total may be the divisor of a later one.
void BlockSums::finish_totals(SharedMemory& shared, Lines& to) {
  shared.need(kFinishThreads);
  const std::string shares = numbers_.any_index(mapping_.grid(), "shares");
  for (const Sum& sum : sums_) {
    if (!sum.is_total()) continue;
    const auto& result = kernel_.sums[sum.node->index];
    const std::string name = join("total", sum.node->index);
    to.add(sum.type, " ", name, " = 0;");
    to.add("for (Index i = threadIdx.x; i < ", shares, "; i += ", kFinishThreads, ") {");
    to.add(name, " = add(", name, ", ", sum.shares(), "[i]);");
    to.add("}");
    to.add(name, " = reduce_neighbours<Sum, ", kFinishThreads, ", 1>(", name, ", ", shared_as(sum.type), ");");
    if (result.scale != 1) {
      const std::string scale = numbers_.real(result.scale, real_type(sum));
      to.add(name, " = static_cast<", sum.type, ">(", name, " * ", scale, ");");
    }
    if (!result.array) continue;
    const std::string divided = result.divisor ? join(name, " / total", *result.divisor) : name;
    to.add("if (threadIdx.x == 0) ", array_text(*result.array, result.dtype), "[0] = Stored<",
           storage_text(result.dtype), ">::of(", divided, ");");
  }
}

}  // namespace thunder::executors::cuda
