#include "executors/cuda_kernels/row_passes.h"

#include <algorithm>
#include <cstdint>

namespace thunder::executors::cuda {
namespace {

using fusion::Extent;
using fusion::KernelNode;
using fusion::SizedKernel;
using Kind = KernelNode::Kind;
using SizedAccess = fusion::BasicAccess<std::int64_t>;

bool is_same_place(const SizedAccess& load, const SizedAccess& store, const SizedKernel& kernel) {
  if (!store.is_dense) {
    return load.outer_strides == store.outer_strides && load.inner_stride == store.inner_stride &&
           load.run == store.run;
  }
  const auto& domain = kernel.domain;
  if (domain.interleaved || domain.run != 0 || load.run != 0 || load.inner_stride != 1) return false;
  std::int64_t stride = domain.columns;
  for (std::size_t i = domain.outer.size(); i-- > 0; stride *= domain.outer[i]) {
    if (load.outer_strides[i] != stride) return false;
  }
  return true;
}

bool overwrites(const SizedKernel& kernel, const RowPasses& passes, const std::set<std::size_t>& kept,
                std::uint32_t input, std::uint32_t output) {
  const auto is_store = [&](const KernelNode& node) {
    return node.kind == Kind::kStore && kernel.accesses[node.index].array == output;
  };
  const auto store = std::ranges::find_if(kernel.nodes, is_store);
  if (store == kernel.nodes.end() || !passes.works_on_elements(*store)) return false;
  const SizedAccess& written = kernel.accesses[store->index];
  if (!written.parts.empty() || store->operand_count > 1) return false;
  std::set<std::size_t> needed_later;
  for (std::size_t pass = passes.of_work(*store) + 1; pass < passes.count(); ++pass) {
    needed_later.merge(passes.elements_of(pass));
  }
  return std::ranges::all_of(kernel.nodes, [&](const KernelNode& node) {
    // These read other elements than their own.
    if (node.kind == Kind::kPick || node.kind == Kind::kGather || node.kind == Kind::kAssemble) return false;
    if (node.kind != Kind::kLoad || kernel.accesses[node.index].array != input) return true;
    const std::size_t number = passes.number(node);
    return is_same_place(kernel.accesses[node.index], written, kernel) &&
           (!needed_later.contains(number) || kept.contains(number));
  });
}

}  // namespace

RowPasses::RowPasses(const SizedKernel& kernel, bool joins) : kernel_(kernel) {
  if (joins) join_sums();
  for (const KernelNode& node : kernel.nodes) {
    std::size_t pass = 0;
    for (std::size_t i = 0; i < node.operand_count; ++i) pass = std::max(pass, of_value_[node.operands[i]]);
    const bool is_joined = joined_.contains(number(node));
    of_value_.push_back(pass + (is_reduction(node) && !is_joined ? 1 : 0));
    count_ = std::max(count_, of_value_.back() + 1);
  }
}

/// Each maximum is joined by one sum: after `simplified` there are no others.
void RowPasses::join_sums() {
  std::set<std::size_t> taken;
  for (const KernelNode& sum : kernel_.nodes) {
    if (sum.kind != Kind::kReduce || sum.reduction != fusion::Reduction::kSum) continue;
    const KernelNode& power = operand(sum);
    if (power.kind != Kind::kElement || power.op != fusion::ElementOp::kExp) continue;
    const KernelNode& difference = operand(power);
    if (difference.kind != Kind::kElement || difference.op != fusion::ElementOp::kSubtract) continue;
    const KernelNode& largest = operand(difference, 1);
    const bool is_maximum = largest.kind == Kind::kReduce && largest.reduction == fusion::Reduction::kMax &&
                            largest.operands[0] == difference.operands[0] && largest.type == sum.type;
    if (is_maximum && taken.insert(number(largest)).second) joined_.emplace(number(sum), number(largest));
  }
}

const KernelNode* RowPasses::joined_maximum(const KernelNode& sum) const {
  const auto found = joined_.find(number(sum));
  return found == joined_.end() ? nullptr : &kernel_.nodes[found->second];
}

const KernelNode* RowPasses::joined_sum(const KernelNode& maximum) const {
  for (const auto& [sum, joined] : joined_) {
    if (joined == number(maximum)) return &kernel_.nodes[sum];
  }
  return nullptr;
}

std::size_t RowPasses::of_work(const KernelNode& node) const { return of_value(node) - (is_reduction(node) ? 1 : 0); }

bool RowPasses::works_on_elements(const KernelNode& node) const {
  if (node.kind == Kind::kTotal || node.kind == Kind::kStore) return operand(node).extent == Extent::kElements;
  return is_reduction(node) || is_sum(node);
}

std::vector<const KernelNode*> RowPasses::work_of(std::size_t pass) const {
  std::vector<const KernelNode*> work;
  for (const KernelNode& node : kernel_.nodes) {
    const bool works = is_reduction(node) || is_sum(node) || node.kind == Kind::kStore;
    if (works && works_on_elements(node) && of_work(node) == pass) work.push_back(&node);
  }
  return work;
}

std::set<std::size_t> RowPasses::elements_of(std::size_t pass) const {
  std::set<std::size_t> seen;
  for (const KernelNode* node : work_of(pass)) {
    if (joined_maximum(*node) == nullptr) visit(*node, seen);  // the maximum reads what it needs
  }
  return seen;
}

void RowPasses::visit(const KernelNode& node, std::set<std::size_t>& seen) const {
  for (std::size_t i = 0; i < node.operand_count; ++i) {
    const KernelNode& read = operand(node, i);
    if (read.extent == Extent::kElements && seen.insert(number(read)).second) visit(read, seen);
  }
}

bool is_reduction(const KernelNode& node) {
  return node.kind == Kind::kReduce || node.kind == Kind::kMean || node.kind == Kind::kVariance;
}

bool is_sum(const KernelNode& node) {
  return node.kind == Kind::kColumnSum || node.kind == Kind::kColumnMoments || node.kind == Kind::kTotal;
}

bool overwrites_inputs(const SizedKernel& kernel, const RowPasses& passes, const std::set<std::size_t>& kept) {
  return std::ranges::all_of(
      kernel.overwritten, [&](const auto& pair) { return overwrites(kernel, passes, kept, pair.first, pair.second); });
}

}  // namespace thunder::executors::cuda
