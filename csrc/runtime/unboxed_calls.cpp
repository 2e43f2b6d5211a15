#include <string>

#include "runtime/unboxed_call.h"
#include "runtime/unboxed_signature.h"

namespace thunder::runtime {
namespace {

/// Signatures of what models of today call, forward and backward; anything else is called boxed.
const Table& table() {
  static const Table signatures = [] {
    Table rows;
    add_pointwise_signatures(rows);
    add_model_signatures(rows);
    add_shape_signatures(rows);
    return rows;
  }();
  return signatures;
}

void append_type(std::string& key, const c10::Argument& argument) {
  key += argument.real_type()->str();
  if (argument.N() && key.ends_with("bool[]")) key.insert(key.size() - 1, std::to_string(*argument.N()));
  if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) key += "!";
}

std::string key_of(const c10::FunctionSchema& schema) {
  std::string key;
  for (const c10::Argument& argument : schema.arguments()) {
    append_type(key, argument);
    key += ",";
  }
  key += "->";
  for (std::size_t i = 0; i < schema.returns().size(); ++i) {
    if (i != 0) key += ",";
    append_type(key, schema.returns()[i]);
  }
  return key;
}

bool shapes_agree(const c10::FunctionSchema& schema, const Registers& results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    const bool list = schema.returns()[i].type()->kind() == c10::TypeKind::ListType;
    if (list != std::holds_alternative<std::vector<std::uint32_t>>(results[i])) return false;
  }
  return true;
}

}  // namespace

BoundFunction bind_unboxed(const c10::OperatorHandle& op, const std::vector<ResolvedOperand>& operands,
                           const std::vector<ResultRegisters>& results) {
  const c10::FunctionSchema& schema = op.schema();
  const auto found = table().find(key_of(schema));
  if (found == table().end() || operands.size() != schema.arguments().size() || !shapes_agree(schema, results)) {
    return {};
  }
  for (const Bind bind : found->second) {
    try {
      return bind(op, operands, results);
    } catch (const c10::Error&) {
      // The operator spells its C++ signature in another way.
    }
  }
  return {};
}

}  // namespace thunder::runtime
