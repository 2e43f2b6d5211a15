#include "executors/cuda_kernels/stores.h"

#include <string_view>

#include "executors/cuda_kernels/element_text.h"

namespace thunder::executors::cuda {

using fusion::KernelNode;
using Kind = KernelNode::Kind;

bool Stores::chooses_row(const KernelNode& node) { return node.kind == Kind::kStore && node.operand_count > 1; }

void Stores::choose_row(const KernelNode& node, Lines& to) {
  const Access& table = access(node);
  const std::size_t number = passes_.number(node);
  const std::string chosen = value(node.operands[1]);
  const std::string rows = numbers_.index(table.table_rows, "table_rows");
  to.add("const bool is_inside", number, " = ", chosen, " >= 0 && ", chosen, " < ", rows, ";");
  to.add("if (!is_inside", number, ") trap();");
  const std::string offset =
      numbers_.term(join("static_cast<Index>(", chosen, ")"), table.table_stride, "table_stride");
  to.add("const Index chosen", number, " = ", sum_of({offset}), ";");
}

void Stores::store_row(const KernelNode& node, Lines& to) {
  const Access& target = access(node);
  std::string condition = may_store(node) + " && is_first";
  std::string offset;
  std::uint32_t array = target.array;
  to.add("{");
  if (target.parts.empty()) {
    offset = sum_of({addresses_.row_offset(target), chosen_row(node)});
  } else {
    to.add("const Index column = 0;");
    const auto [inside, place] = addresses_.place_in(target.parts[0], target.run);
    if (!inside.empty()) condition += " && " + inside;
    offset = place;
    array = target.parts[0].array;
  }
  to.add("if (", condition, ") ", array_text(array, target.dtype), "[", offset, "] = ", stored(node), ";");
  to.add("}");
}

void Stores::store_element(const KernelNode& node, Lines& before, Lines& inside, Lines& after) {
  const Access target = over_elements(node);
  if (!target.parts.empty()) {
    if (has_vectors_of_parts(node)) return store_vector_in_part(node, before, inside, after);
    const auto [condition, offset] = addresses_.place_in(target.parts[0], target.run);
    inside.add("if (is_row", condition.empty() ? "" : " && " + condition, ") {");
    inside.add(array_text(target.parts[0].array, target.dtype), "[", offset, "] = ", stored(node), ";");
    inside.add("}");
    return;
  }
  const auto place = [&](std::string_view column) {
    return join(array_text(target.array, target.dtype), "[", sum_of({offset_at(node, column), chosen_row(node)}), "]");
  };
  if (!is_vectorized(target, kernel_, mapping_, facts_)) {
    inside.add("if (", may_store(node), ") ", place("column"), " = ", stored(node), ";");
    return;
  }
  const std::string vector = vector_of(target);
  const std::string made = join("stored", passes_.number(node));
  before.add(vector, " ", made, ";");
  inside.add(made, ".at[e] = ", stored(node), ";");
  const std::string condition = may_store(node) + (mapping_.has_partial_vectors() ? " && is_inside" : "");
  after.add("if (", condition, ") *reinterpret_cast<", vector, "*>(&", place("first_of_vector"), ") = ", made, ";");
  if (!mapping_.has_partial_vectors()) return;
  after.add("if (", may_store(node), " && !is_inside) write_part(", array_text(target.array, target.dtype), " + ",
            sum_of({offset_of(node), chosen_row(node)}), ", ", made, ", first_of_vector, columns);");
}

void Stores::store_vector_in_part(const KernelNode& node, Lines& before, Lines& inside, Lines& after) {
  const Access& target = access(node);
  const std::string vector = vector_of(target);
  const std::string made = join("stored", passes_.number(node));
  const auto [condition, offset] = addresses_.place_in(target.parts[0], target.run, "first_of_vector");
  before.add(vector, " ", made, ";");
  inside.add(made, ".at[e] = ", stored(node), ";");
  after.add("if (is_row", condition.empty() ? "" : " && " + condition, ") *reinterpret_cast<", vector, "*>(",
            array_text(target.parts[0].array, target.dtype), " + ", offset, ") = ", made, ";");
}

std::string Stores::may_store(const KernelNode& node) const {
  return chooses_row(node) ? join("is_row && is_inside", passes_.number(node)) : "is_row";
}

std::string Stores::chosen_row(const KernelNode& node) const {
  return chooses_row(node) ? join("chosen", passes_.number(node)) : "";
}

}  // namespace thunder::executors::cuda
