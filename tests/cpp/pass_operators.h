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

/// Adds collectives, and what passes put around them.
inline bool add_collectives() {
  for (const char* schema :
       {"_c10d_functional::all_gather_into_tensor(Tensor input, int group_size, str group_name) -> Tensor",
        "_c10d_functional::all_gather_into_tensor_coalesced(Tensor[] inputs, int group_size, str group_name) -> "
        "Tensor[]",
        "_c10d_functional::reduce_scatter_tensor(Tensor input, str reduce_op, int group_size, str group_name) -> "
        "Tensor",
        "_c10d_functional::reduce_scatter_tensor_coalesced(Tensor[] inputs, str reduce_op, int group_size, str "
        "group_name) -> Tensor[]",
        "_c10d_functional::all_reduce_(Tensor(a!) input, str reduce_op, str group_name) -> Tensor(a!)",
        "_c10d_functional::wait_tensor(Tensor tensor) -> Tensor",
        "aten::_to_copy(Tensor self, *, ScalarType? dtype=None) -> Tensor",
        "aten::cat(Tensor[] tensors, int dim=0) -> Tensor",
        "aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
        "aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor",
        "aten::mul.Scalar(Tensor self, Scalar other) -> Tensor",
        "aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)",
        "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> "
        "Tensor(a)",
        "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)"}) {
    add_row(schema);
  }
  return true;
}

inline const ir::Operator* find_row(const std::string& name, const std::string& overload) {
  for (const ir::Operator& op : operator_rows()) {
    if (op.name == name && op.overload == overload) return &op;
  }
  return nullptr;
}

}  // namespace thunder::passes
