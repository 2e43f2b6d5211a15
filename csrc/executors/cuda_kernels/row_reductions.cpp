#include "executors/cuda_kernels/row_reductions.h"

namespace thunder::executors::cuda {
namespace {

using fusion::KernelNode;
using Kind = KernelNode::Kind;

/// The structure of `Sum`, `Maximum`, … in the prelude.
std::string reduction_text(const KernelNode& node) {
  if (node.kind != Kind::kReduce || node.reduction == fusion::Reduction::kSum) return "Sum";
  return node.reduction == fusion::Reduction::kMax ? "Maximum" : "Minimum";
}

std::string identity_text(const KernelNode& node) {
  const std::string reduction = reduction_text(node);
  if (reduction == "Sum") return "0";
  const bool is_max = reduction == "Maximum";
  if (is_integer(node)) return is_max ? "-9223372036854775807ll - 1" : "9223372036854775807ll";
  return is_max ? "value_of(Bfloat16{0xff80})" : "value_of(Bfloat16{0x7f80})";
}

std::string reduced(const KernelNode& node) {
  if (node.kind != Kind::kVariance) return join(type_of(node), "(", value(node.operands[0]), ")");
  const std::string distance = join("(", value(node.operands[1]), " - ", value(node.operands[0]), ")");
  return join(distance, " * ", distance);
}

}  // namespace

void RowReductions::declare(const KernelNode& node, Lines& to) const {
  to.add(type_of(node), " ", value_of(node), " = ", identity_text(node), ";");
}

void RowReductions::add(const KernelNode& node, Lines& inside) const {
  inside.add(value_of(node), " = ", reduction_text(node), "::of(", value_of(node), ", ", reduced(node), ");");
}

void RowReductions::add_exponentials(const KernelNode& sum, Lines& before, Lines& inside, Lines& after,
                                     Lines& to) const {
  const KernelNode& largest = *passes_.joined_maximum(sum);
  const std::string given = join("given", passes_.number(sum));
  to.add(type_of(sum), " ", value_of(sum), " = 0;");
  before.add(type_of(sum), " ", given, "[", mapping_.vector, "];");
  if (mapping_.has_partial_vectors()) {
    before.add("#pragma unroll");
    before.add("for (int e = 0; e < ", mapping_.vector, "; ++e) ", given, "[e] = ", identity_text(largest), ";");
  }
  inside.add(given, mapping_.vector == 1 ? "[0] = " : "[e] = ", reduced(largest), ";");
  after.add("take_exponentials(", value_of(largest), ", ", value_of(sum), ", ", given, ");");
}

void RowReductions::reduce_over_threads(const KernelNode& node, Lines& to) {
  const std::string made = value_of(node);
  const KernelNode* joined = passes_.joined_sum(node);
  const std::string own = join("own", passes_.number(node));
  if (joined != nullptr) to.add("const ", type_of(node), " ", own, " = ", made, ";");
  if (mapping_.threads > 1) {
    const int warps = mapping_.thread_count() / 32 + 1;
    shared_.need(std::int64_t{8} * (mapping_.are_neighbours ? warps : mapping_.thread_count()));
    to.add(made, " = ", mapping_.are_neighbours ? "reduce_neighbours" : "reduce_apart", "<", reduction_text(node), ", ",
           mapping_.threads, ", ", mapping_.rows, ">(", made, ", reinterpret_cast<", type_of(node), "*>(shared));");
  }
  if (joined != nullptr) to.add(value_of(*joined), " *= narrow_exp(", own, " - finite_shift(", made, "));");
  // Where the largest element is infinite, exponentials of differences are NaN.
  const KernelNode* largest = passes_.joined_maximum(node);
  if (largest != nullptr) to.add(made, " += ", value_of(*largest), " - ", value_of(*largest), ";");
  const std::string columns = join("static_cast<", type_of(node), ">(columns)");
  if (node.kind == Kind::kMean) to.add(made, " /= ", columns, ";");
  if (node.kind == Kind::kVariance) to.add(made, " /= ", columns, " - ", numbers_.real(node.number, node.type), ";");
}

}  // namespace thunder::executors::cuda
