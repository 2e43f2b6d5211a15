#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <string_view>

#include "ir/operator.h"
#include "operators/facts.h"

namespace thunder::tracer {

using operators::Fact;

/// The row for a dispatcher operator, made from its schema at first use; later uses get the same row.
[[nodiscard]] const ir::Operator* operator_for(const c10::OperatorHandle& op);
/// The row for `aten::add`, `Tensor`; null when there is no such operator.
[[nodiscard]] const ir::Operator* find_operator(const std::string& name, const std::string& overload);
[[nodiscard]] const c10::OperatorHandle& handle_of(const ir::Operator& op);
[[nodiscard]] bool has_fact(const c10::OperatorHandle& op, Fact fact);

/// To PyTorch it is what other operators do. Not `silu_backward` and the like, which have kernels and a derivative of
/// their own besides.
[[nodiscard]] bool is_composite(const c10::OperatorHandle& op);

/// A tensor that the trace carries with it (`prims.tensor_constant(object0)`).
[[nodiscard]] const ir::Operator* tensor_constant_operator();

/// The argument of a function that makes a tensor (`zeros`), where its `out=` variant has the tensor.
[[nodiscard]] bool is_factory_option(std::string_view name);

/// The operator that computes what `op` (in-place or `out=`) writes, and returns it instead, behind what `op` returns
/// besides; nullopt when there is none. Its arguments are those of `op`, without `out` arguments, and factory options.
[[nodiscard]] std::optional<c10::OperatorHandle> functional_counterpart(const c10::OperatorHandle& op);

/// Throws a UserError (not implemented) that names the operator.
[[noreturn]] void refuse(const c10::OperatorHandle& op, const std::string& reason);

}  // namespace thunder::tracer
