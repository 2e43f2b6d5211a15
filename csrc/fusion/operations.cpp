#include "fusion/operations.h"

#include <string>
#include <string_view>
#include <unordered_map>

#include "passes/symbol_facts.h"

namespace thunder::fusion {

const Operation* find_elementwise(const ir::Operator& op);
// One for each area; each adds its rows.
using Table = std::unordered_map<std::string_view, Operation>;
void add_rowwise(Table& table);
void add_norms(Table& table);
void add_losses(Table& table);
void add_row_gathers(Table& table);
void add_row_products(Table& table);
void add_placements(Table& table);
void add_random_operations(Table& table);
void add_permutations(Table& table);

namespace {

Table make_table() {
  Table table;
  add_rowwise(table);
  add_norms(table);
  add_losses(table);
  add_row_gathers(table);
  add_row_products(table);
  add_placements(table);
  add_random_operations(table);
  add_permutations(table);
  return table;
}

bool is_supported(const ir::TensorType& type, const Target& target) {
  if (type.layout != ir::Layout::kStrided || !target.accepts(type)) return false;
  for (const ir::Dim& size : type.sizes) {
    if (size == ir::Dim(0)) return false;
  }
  return has_compute_type(type.dtype);
}

}  // namespace

const Operation* find_operation(const ir::Operator& op) {
  static const Table kTable = make_table();
  const std::string name = op.overload.empty() ? op.name : op.name + "." + op.overload;
  const auto found = kTable.find(name);
  return found == kTable.end() ? find_elementwise(op) : &found->second;
}

FusionRole role_of(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  const Operation* operation = find_operation(*symbol.op);
  if (operation == nullptr) return {};
  bool supported = true;
  const auto check = [&](ir::ValueId id) {
    const ir::TensorType* type = passes::operand_type(trace, id);
    supported = supported && type != nullptr && is_supported(*type, target);
  };
  passes::for_each_argument(symbol, check);
  passes::for_each_result(symbol, check);
  return supported ? operation->role(symbol, trace, target) : FusionRole{};
}

}  // namespace thunder::fusion
