#pragma once

#include <string>
#include <string_view>

#include "ir/trace.h"

namespace thunder::ir {

/// An operator row from a schema as PyTorch writes it, `aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar
/// alpha=1) -> Tensor(a!)`: for tests and for primitives; `mutates` and `view` follow from the annotations. Rows that
/// the dispatcher knows are made by `tracer/`.
[[nodiscard]] Operator parse_operator(std::string_view schema, CallStyle style = CallStyle::kTorchOperator);

/// The schema as `parse_operator` takes it, without default values: they are filled in where an operator is called.
[[nodiscard]] std::string schema_of(const Operator& op);

/// A strided, contiguous tensor.
[[nodiscard]] TypePtr tensor_type(Dtype dtype, Dims sizes, Device device = {});

/// Appends a symbol. `arguments` may stop early: what is missing takes its default.
BoundSymbol& add_symbol(Trace& trace, const Operator& op, ArgumentList arguments, ArgumentList results);

/// Appends a symbol that gives one new value.
ValueId add_call(Trace& trace, const Operator& op, ArgumentList arguments, TypePtr type, std::string name = {},
                 SourceLocation location = {});

}  // namespace thunder::ir
