#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>

#include "bridge/convert.h"
#include "ir/trace.h"

namespace thunder::tracer {

/// Writes arguments with `value(id)` for values, and the objects of the context, which must outlive it.
[[nodiscard]] bridge::ArgumentWriter make_writer(const ir::TraceContext& context,
                                                 std::function<c10::IValue(ir::ValueId)> value);

/// The arguments of a symbol as a call of `op` takes them.
[[nodiscard]] torch::jit::Stack arguments_of(const ir::BoundSymbol& symbol, const c10::OperatorHandle& op,
                                             const bridge::ArgumentWriter& writer);

}  // namespace thunder::tracer
