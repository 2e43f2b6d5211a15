#include "executors/cuda_kernels/element_values.h"

#include <algorithm>
#include <array>

#include "executors/cuda_kernels/element_text.h"
#include "executors/cuda_kernels/registers.h"

namespace thunder::executors::cuda {
namespace {

using fusion::ComputeType;
using fusion::Extent;
using fusion::KernelNode;
using fusion::SizedKernel;
using Kind = KernelNode::Kind;

/// Whether there are elements that are stored, and all of them in 16-bit floats.
bool stores_narrow_elements(const SizedKernel& kernel) {
  bool stores = false;
  bool are_narrow = true;
  for (const KernelNode& node : kernel.nodes) {
    if (node.kind != Kind::kStore || kernel.nodes[node.operands[0]].extent != Extent::kElements) continue;
    const ir::Dtype dtype = kernel.accesses[node.index].dtype;
    stores = true;
    are_narrow = are_narrow && ir::is_half(dtype);
  }
  return stores && are_narrow;
}

/// Whether all results are 16-bit floats, sums over rows too.
bool gives_narrow_results(const SizedKernel& kernel) {
  return std::ranges::all_of(kernel.nodes, [&](const KernelNode& node) {
    if (node.kind == Kind::kStore) return ir::is_half(kernel.accesses[node.index].dtype);
    return !is_sum(node) || ir::is_half(kernel.sums[node.index].dtype);
  });
}

}  // namespace

ElementValues::ElementValues(KernelContext& context)
    : KernelPart(context),
      kept_(context.kept),
      ahead_(context.ahead),
      is_narrow_(stores_narrow_elements(kernel_)),
      has_narrow_results_(gives_narrow_results(kernel_)) {}

void ElementValues::begin_pass(std::size_t pass) {
  loaded_here_.clear();
  grouped_.clear();
  for (const std::size_t node : passes_.elements_of(pass)) {
    if (loads_vectors(kernel_.nodes[node])) grouped_.insert(node);
  }
  if (vectors_at_once(mapping_, grouped_.size()) == 0) grouped_.clear();
}

void ElementValues::end_pass() { loaded_.insert(loaded_here_.begin(), loaded_here_.end()); }

void ElementValues::emit_element(std::size_t number, std::set<std::size_t>& defined, Lines& before, Lines& inside,
                                 bool is_single) {
  const KernelNode& node = kernel_.nodes[number];
  if (node.extent != Extent::kElements || !defined.insert(number).second) return;
  for (std::size_t i = 0; i < node.operand_count; ++i) {
    emit_element(node.operands[i], defined, before, inside, is_single);
  }
  const bool is_assembled_of_vectors = node.kind == Kind::kAssemble && !is_single && has_vectors_of_parts(node);
  if (node.kind == Kind::kAssemble && !is_assembled_of_vectors) return emit_assembled(node, inside);
  std::string text;
  if (is_assembled_of_vectors) {
    emit_assembled_vector(node, before);
    text = join("value_of(vector", number, ".at[e])");
  } else if (node.kind == Kind::kRandom) {
    text = random_text(node, before, is_single);
  } else if (node.kind == Kind::kLoad || node.kind == Kind::kGather) {
    const bool is_of_vector = !is_single && loads_vectors(node);
    if (is_of_vector) emit_vector(node, before);
    text = is_of_vector ? join("value_of(vector", number, ".at[e])") : loaded(node, offset_at(node, "column"));
  } else if (node.kind == Kind::kScatterAdd) {
    text = join("column == target", number, " ? add(", value(node.operands[0]), ", static_cast<", type_of(node), ">(",
                value(node.operands[2]), ")) : ", value(node.operands[0]));
  } else {
    text = computed(node);
  }
  inside.add("const ", type_of(node), " ", value(number), " = ", text, ";");
}

std::string ElementValues::computed(const KernelNode& node) {
  switch (node.kind) {
    case Kind::kConstant:
      if (node.type == ComputeType::kBool) return node.number != 0 ? "true" : "false";
      if (node.type == ComputeType::kInteger) return join("Integer(", node.integer, "ll)");
      return numbers_.real(node.number, node.type);
    case Kind::kElement:
      return element(node);
    case Kind::kRound:
      return rounded_text(value(node.operands[0]), node.type, node.dtype);
    case Kind::kConvert:
      if (node.type == ComputeType::kBool) return join(value(node.operands[0]), " != 0");
      return join("static_cast<", type_of(node), ">(", value(node.operands[0]), ")");
    default:
      return value(node.operands[0]);  // expanded
  }
}

std::string ElementValues::element(const KernelNode& node) const {
  std::array<OperandText, 3> operands;
  ComputeType type = operand(node, node.operand_count - 1).type;
  for (std::size_t i = 0; i < node.operand_count; ++i) {
    operands[i] = {value(node.operands[i]), operand(node, i).type};
    const bool is_condition = node.op == operators::ElementOp::kWhere && i == 0;
    if (!is_condition && !is_integer(operand(node, i))) type = operand(node, i).type;
  }
  const bool is_narrow = node.op == operators::ElementOp::kExp ? has_narrow_results_ : is_narrow_;
  return operation_text(node.op, type, operands, is_narrow);
}

std::string ElementValues::random_text(const KernelNode& node, Lines& before, bool is_single) {
  Access dense;
  dense.is_dense = true;
  const std::string state = array_text(access(node).array, access(node).dtype);
  const auto index = [&](std::string_view column) {
    return sum_of({addresses_.row_offset(dense), addresses_.column_offset(dense, column)});
  };
  if (is_single || !draws_together(node, kernel_, mapping_)) {
    return join("random_at(", state, ", static_cast<Index>(", index("column"), "))");
  }
  const std::size_t number = passes_.number(node);
  const bool is_kept = kept_.contains(number);
  const std::string name = is_kept ? join("kept", number, "[j]") : join("random", number);
  if (!is_kept) before.add("RandomNumbers ", name, "[", mapping_.vector / kRandomTogether, "];");
  for (int i = 0; i < mapping_.vector / kRandomTogether && !loaded_.contains(number); ++i) {
    before.add(name, "[", i, "] = random_numbers_at(", state, ", static_cast<Index>(",
               index(join("(first_of_vector + ", i * kRandomTogether, ")")), "));");
  }
  if (is_kept) loaded_here_.insert(number);
  return join(name, "[e / ", kRandomTogether, "].at[e % ", kRandomTogether, "]");
}

std::string ElementValues::loaded_vector(const KernelNode& node) {
  const std::string array = array_text(access(node).array, access(node).dtype);
  const std::string place = join(array, " + ", offset_at(node, "first_of_vector"));
  const std::string vector =
      read(access(node).array, join("reinterpret_cast<const ", vector_of(access(node)), "*>(", place, ")"));
  if (!mapping_.has_partial_vectors()) return vector;
  return join("is_inside ? ", vector, " : read_part<", mapping_.vector, ">(", array, " + ", offset_of(node),
              ", first_of_vector, columns)");
}

void ElementValues::emit_vector(const KernelNode& node, Lines& before) {
  const std::size_t number = passes_.number(node);
  const std::string vector = vector_of(access(node));
  if (ahead_.contains(number)) {
    before.add("const ", vector, " vector", number, " = ahead", number, "[u];");
    return;
  }
  if (grouped_.contains(number)) {
    before.add("const ", vector, " vector", number, " = group", number, "[j];");
    return;
  }
  const bool is_kept = kept_.contains(number);
  if (is_kept && loaded_.contains(number)) {
    before.add("const ", vector, " vector", number, " = kept", number, "[j];");
    return;
  }
  before.add("const ", vector, " vector", number, " = ", loaded_vector(node), ";");
  if (!is_kept) return;
  before.add("kept", number, "[j] = vector", number, ";");
  loaded_here_.insert(number);
}

void ElementValues::emit_assembled(const KernelNode& node, Lines& inside) {
  const Access& assembled = access(node);
  const std::string fill = node.operand_count == 0 ? "" : " = " + value(node.operands[0]);
  inside.add(type_of(node), " ", value_of(node), fill, ";");
  std::string otherwise;
  for (auto part = assembled.parts.rbegin(); part != assembled.parts.rend(); ++part) {
    const auto [condition, offset] = addresses_.place_in(*part, assembled.run);
    inside.add(otherwise, "if (", condition.empty() ? "true" : condition, ") {");
    inside.add(value_of(node), " = value_of(",
               read(part->array, join(array_text(part->array, assembled.dtype), " + ", offset)), ");");
    inside.add("}");
    otherwise = "else ";
  }
}

void ElementValues::emit_assembled_vector(const KernelNode& node, Lines& before) {
  const Access& assembled = access(node);
  const std::string vector = vector_of(assembled);
  const std::string name = join("vector", passes_.number(node));
  before.add(vector, " ", name, ";");
  std::string otherwise;
  for (auto part = assembled.parts.rbegin(); part != assembled.parts.rend(); ++part) {
    const auto [condition, offset] = addresses_.place_in(*part, assembled.run, "first_of_vector");
    before.add(otherwise, "if (", condition.empty() ? "true" : condition, ") {");
    const std::string place = join(array_text(part->array, assembled.dtype), " + ", offset);
    before.add(name, " = ", read(part->array, join("reinterpret_cast<const ", vector, "*>(", place, ")")), ";");
    before.add("}");
    otherwise = "else ";
  }
  if (node.operand_count == 0) return;
  before.add("else {");
  before.add("#pragma unroll");
  before.add("for (int e = 0; e < ", mapping_.vector, "; ++e) ", name, ".at[e] = ", stored(node), ";");
  before.add("}");
}

}  // namespace thunder::executors::cuda
