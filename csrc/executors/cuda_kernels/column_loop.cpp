#include "executors/cuda_kernels/column_loop.h"

#include <set>
#include <vector>

#include "executors/cuda_kernels/registers.h"

namespace thunder::executors::cuda {
namespace {

using fusion::KernelNode;
using Kind = KernelNode::Kind;

/// Elements, or vectors, of a row too long for registers that a thread works on at the same time.
constexpr int kElementsAtOnce = 4;

}  // namespace

void ColumnLoop::emit_pass(std::size_t pass, Lines& to) {
  const std::vector<const KernelNode*> work = passes_.work_of(pass);
  if (work.empty()) return;
  Lines before;
  Lines inside;
  Lines after;
  std::set<std::size_t> defined;
  elements_.begin_pass(pass);
  for (const KernelNode* node : work) {
    if (passes_.joined_maximum(*node) != nullptr) {
      reductions_.add_exponentials(*node, before, inside, after, to);
      continue;
    }
    for (std::size_t i = 0; i < node->operand_count; ++i)
      elements_.emit_element(node->operands[i], defined, before, inside);
    if (passes_.joined_sum(*node) != nullptr) {
      reductions_.declare(*node, to);
    } else if (is_reduction(*node)) {
      reductions_.declare(*node, to);
      reductions_.add(*node, inside);
    } else if (node->kind == Kind::kStore) {
      stores_.store_element(*node, before, inside, after);
    } else {
      sums_.add(*node, inside);
    }
  }
  emit_columns(before, inside, after, to);
  elements_.end_pass();
  for (const KernelNode* node : work) {
    if (is_reduction(*node)) reductions_.reduce_over_threads(*node, to);
  }
}

void ColumnLoop::emit_columns(const Lines& before, const Lines& inside, const Lines& after, Lines& to) {
  const std::int64_t step = std::int64_t{mapping_.threads} * mapping_.vector;
  const std::string begin = mapping_.is_shifted ? "first - shift" : "first";
  if (!elements_.grouped().empty()) {
    emit_grouped_loads(begin, step, to);
  } else if (mapping_.repeats == 0) {
    to.add("#pragma unroll ", kElementsAtOnce);  // so that several reads are under way
    to.add("for (Index first_of_vector = ", begin, "; first_of_vector < columns; first_of_vector += ", step, ") {");
  } else {
    to.add("#pragma unroll");
    to.add("for (int j = 0; j < ", mapping_.repeats, "; ++j) {");
    to.add("const Index first_of_vector = ", begin, " + j * ", step, ";");
    // Without a condition, all loads of a thread are under way before the first of them is used.
    if (!mapping_.is_full) to.add("if (first_of_vector < columns) {");
  }
  emit_is_inside(to);
  to.append(before);
  if (mapping_.vector == 1) {
    to.add("const Index column = first_of_vector;");
    to.append(inside);
  } else if (mapping_.has_partial_vectors()) {
    to.add("if (is_inside) {");
    emit_elements(inside, "", to);
    to.add("} else {");
    emit_elements(inside, "if (column >= 0 && column < columns) {", to);
    to.add("}");
  } else {
    emit_elements(inside, "", to);
  }
  to.append(after);
  to.add("}");
  if (mapping_.repeats != 0 && !mapping_.is_full) to.add("}");
  if (!elements_.grouped().empty()) {
    to.add("}");
    to.add("}");
  }
}

void ColumnLoop::emit_grouped_loads(const std::string& begin, std::int64_t step, Lines& to) {
  const std::size_t count = vectors_at_once(mapping_, elements_.grouped().size());
  to.add("for (Index group = ", begin, "; group < columns; group += ", step * static_cast<std::int64_t>(count), ") {");
  for (const std::size_t number : elements_.grouped()) {
    to.add(vector_of(access(kernel_.nodes[number])), " group", number, "[", count, "];");
  }
  const auto begin_vector = [&] {
    to.add("#pragma unroll");
    to.add("for (int j = 0; j < ", count, "; ++j) {");
    to.add("const Index first_of_vector = group + j * ", step, ";");
    to.add("if (first_of_vector < columns) {");
  };
  begin_vector();
  emit_is_inside(to);
  for (const std::size_t number : elements_.grouped()) {
    to.add("group", number, "[j] = ", elements_.loaded_vector(kernel_.nodes[number]), ";");
  }
  to.add("}");
  to.add("}");
  begin_vector();
}

void ColumnLoop::emit_elements(const Lines& inside, std::string_view condition, Lines& to) const {
  to.add("#pragma unroll");
  to.add("for (int e = 0; e < ", mapping_.vector, "; ++e) {");
  to.add("const Index column = first_of_vector + e;");
  if (!condition.empty()) to.add(condition);
  to.append(inside);
  if (!condition.empty()) to.add("}");
  to.add("}");
}

}  // namespace thunder::executors::cuda
