#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "ir/serialization.h"
#include "ir/trace.h"

namespace thunder::bridge {

// Object constants of a trace's context. An object of another kind is an InternalError.

[[nodiscard]] ir::ObjectConstant add_tensor(ir::TraceContext& context, at::Tensor tensor);
/// A generator, or what else an operator takes.
[[nodiscard]] ir::ObjectConstant add_value(ir::TraceContext& context, c10::IValue value);

/// `object` is an ObjectConstant that `add_tensor` gave.
[[nodiscard]] const at::Tensor& tensor_of(const ir::TraceContext& context, const ir::Argument& object);
[[nodiscard]] const c10::IValue& value_of(const ir::TraceContext& context, ir::ObjectConstant object);

/// Stores the contents of strided tensors, and which device a default generator is for.
[[nodiscard]] const ir::ConstantStorage& constant_storage();

}  // namespace thunder::bridge
