#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/argument.h"

namespace thunder::ir {

/// One parameter or result of an operator's schema.
struct SchemaValue {
  std::string name;
  std::string type;  ///< as the schema spells it: `Tensor`, `Tensor?`, `SymInt[]`, …
  bool keyword_only = false;
  bool mutated = false;   ///< the schema's `!`
  std::string alias_set;  ///< the schema's `a` in `Tensor(a)`; empty: no alias
  std::optional<Argument> default_value;
};

/// How the printed program spells a call of the operator.
enum class CallStyle : std::uint8_t {
  kTorchOperator,  ///< `torch.ops.aten.add.Tensor(x, y, alpha=2)`
  kPrimitive,      ///< `prims.check_tensor(x, …)`: a function of `thunder.prims`; a namespace in the name is left out
  kReturn,         ///< `return …`
  kComment,        ///< prints as a comment: runs nothing
  kBlock,          ///< `with prims.fused("cpu", [x, y]):`, then the nested operations, which make its results
};

/// A schema row. Rows are made once and live as long as the process: symbols point to them.
struct Operator {
  std::string name;      ///< `aten::add`
  std::string overload;  ///< `Tensor`; empty prints as `default`
  CallStyle style = CallStyle::kTorchOperator;
  std::vector<SchemaValue> parameters;
  std::vector<SchemaValue> results;
  bool mutates = false;             ///< writes to an argument
  bool random = false;              ///< draws from a generator
  bool view = false;                ///< a result aliases an argument
  bool effect = false;              ///< has an effect besides: never removed, reordered against other effects
  const void* handle = nullptr;     ///< the dispatcher's entry; set by `tracer/`, read by `runtime/`
  mutable std::uint64_t facts = 0;  ///< kept and read by `operators/facts.h`
};

/// Gives the row of an operator that a trace need not hold yet (`aten::add_`, `Tensor`); null when there is none.
using FindOperator = const Operator* (*)(const std::string& name, const std::string& overload);

}  // namespace thunder::ir
