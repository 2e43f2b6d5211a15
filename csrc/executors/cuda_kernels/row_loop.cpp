#include "executors/cuda_kernels/row_loop.h"

namespace thunder::executors::cuda {

using fusion::Extent;
using fusion::KernelNode;
using Kind = KernelNode::Kind;

RowLoop::RowLoop(KernelContext& context)
    : KernelPart(context),
      ahead_(context.ahead),
      sums_(context.sums),
      elements_(context),
      stores_(context),
      columns_(context, elements_, stores_) {}

void RowLoop::emit(Lines& to) { ahead_.empty() ? emit_rows(to) : emit_rows_ahead(to); }

void RowLoop::emit_rows(Lines& to) {
  if (mapping_.unrolled > 1) to.add("#pragma unroll ", mapping_.unrolled);
  to.add("for (Index base = begin; base < end; base += ", mapping_.rows, ") {");
  emit_row(to);
  to.add("}");
}

void RowLoop::emit_rows_ahead(Lines& to) {
  to.add("for (Index base_of_all = begin; base_of_all < end; base_of_all += ", mapping_.rows * mapping_.unrolled,
         ") {");
  for (const std::size_t number : ahead_) {
    to.add(vector_of(access(kernel_.nodes[number])), " ahead", number, "[", mapping_.unrolled, "];");
  }
  const auto begin_row = [&] {
    to.add("#pragma unroll");
    to.add("for (int u = 0; u < ", mapping_.unrolled, "; ++u) {");
    to.add("const Index base = base_of_all + u * ", mapping_.rows, ";");
  };
  begin_row();
  emit_place(to);
  to.add("const Index first_of_vector = first;");
  emit_is_inside(to);
  for (const std::size_t number : ahead_) {
    const KernelNode& node = kernel_.nodes[number];
    to.add("const Index ", offset_of(node), " = ", addresses_.row_offset(over_elements(node)), ";");
    to.add("ahead", number, "[u] = ", elements_.loaded_vector(node), ";");
  }
  to.add("}");
  begin_row();
  emit_row(to);
  to.add("}");
  to.add("}");
}

void RowLoop::emit_place(Lines& to) {
  to.add("const bool is_row = base + y < end;");
  to.add("const Index row = is_row ? base + y : end - 1;");
  addresses_.declare_indices(to);
}

void RowLoop::emit_row(Lines& to) {
  emit_place(to);
  sums_.begin_row(to);
  for (const KernelNode& node : kernel_.nodes) {
    const bool loads = node.kind == Kind::kLoad && node.extent == Extent::kElements;
    const bool stores = node.kind == Kind::kStore && passes_.works_on_elements(node) && access(node).parts.empty();
    if (loads || stores)
      to.add("const Index ", offset_of(node), " = ", addresses_.row_offset(over_elements(node)), ";");
  }
  if (mapping_.is_shifted) to.add("const Index shift = (row * columns) % ", mapping_.vector, ";");
  for (std::size_t pass = 0; pass < passes_.count(); ++pass) {
    for (const KernelNode& node : kernel_.nodes) {
      if (passes_.of_value(node) == pass) emit_for_row(node, to);
    }
    columns_.emit_pass(pass, to);
  }
}

void RowLoop::emit_for_row(const KernelNode& node, Lines& to) {
  if (Stores::chooses_row(node)) stores_.choose_row(node, to);
  if (node.kind == Kind::kStore || is_sum(node)) {
    if (passes_.works_on_elements(node)) return;
    node.kind == Kind::kStore ? stores_.store_row(node, to) : sums_.add(node, to);
  } else if (node.kind == Kind::kGather) {
    emit_gathered_row(node, to);
  } else if (node.kind == Kind::kPick) {
    emit_pick(node, to);
  } else if (node.kind == Kind::kScatterAdd) {
    const std::string column = value(node.operands[1]);
    to.add("if (", column, " < 0 || ", column, " >= columns) trap();");
    to.add("const Index target", passes_.number(node), " = static_cast<Index>(", column, ");");
  } else if (node.extent != Extent::kElements && !is_reduction(node)) {
    to.add("const ", type_of(node), " ", value_of(node), " = ",
           node.kind == Kind::kLoad ? loaded(node, addresses_.row_offset(access(node))) : elements_.computed(node),
           ";");
  }
}

void RowLoop::emit_gathered_row(const KernelNode& node, Lines& to) {
  const Access& table = access(node);
  const std::string chosen = value(node.operands[0]);
  const std::string rows = numbers_.index(table.table_rows, "table_rows");
  to.add("if (", chosen, " < 0 || ", chosen, " >= ", rows, ") trap();");
  const std::string offset =
      numbers_.term(join("static_cast<Index>(", chosen, ")"), table.table_stride, "table_stride");
  to.add("const Index ", offset_of(node), " = ", sum_of({offset}), ";");
}

void RowLoop::emit_pick(const KernelNode& node, Lines& to) {
  to.add(type_of(node), " ", value_of(node), ";");
  to.add("{");
  to.add("const Index column = static_cast<Index>(", value(node.operands[1]), ");");
  to.add("if (column < 0 || column >= columns) trap();");
  std::set<std::size_t> defined;
  Lines no_vectors;
  elements_.emit_element(node.operands[0], defined, no_vectors, to, /*is_single=*/true);
  to.add(value_of(node), " = ", value(node.operands[0]), ";");
  to.add("}");
}

}  // namespace thunder::executors::cuda
