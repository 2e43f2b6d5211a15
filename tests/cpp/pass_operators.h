#pragma once

#include <list>
#include <string>
#include <string_view>

#include "ir/builder.h"
#include "ir/trace.h"

namespace thunder::passes {

/// Rows of operators as the dispatcher would give them, for tests of passes that put operators into traces.
inline std::list<ir::Operator>& operator_rows() {
  static std::list<ir::Operator> rows;
  return rows;
}

inline const ir::Operator& add_row(std::string_view schema, bool random = false) {
  ir::Operator& op = operator_rows().emplace_back(ir::parse_operator(schema));
  op.random = random;
  return op;
}

inline const ir::Operator* find_row(const std::string& name, const std::string& overload) {
  for (const ir::Operator& op : operator_rows()) {
    if (op.name == name && op.overload == overload) return &op;
  }
  return nullptr;
}

}  // namespace thunder::passes
