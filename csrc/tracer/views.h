#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <vector>

#include "tracer/trace_tensor.h"

namespace thunder::tracer {

/// A call of an operator: what to record.
struct OperatorCall {
  const char* name;
  const char* overload;
  std::vector<c10::IValue> arguments;
};

/// A view whose writes autograd does not see: their gradient is not one of the memory.
[[nodiscard]] bool is_detached(const ViewOf& view);

/// The call that gives `view.parent` with the part that the view `shown` shows replaced by `source` (same shape);
/// nullopt when the view cannot be written through. Throws eager's error where elements of `shown` share memory.
[[nodiscard]] std::optional<OperatorCall> write_through(const ViewOf& view, const at::Tensor& shown,
                                                        const at::Tensor& source);

/// Makes a scatter one of the `view_as_real` of its tensors, where it has no derivative for complex numbers (of a
/// diagonal, they follow it in the source). False: it has one.
[[nodiscard]] bool to_real_parts(OperatorCall& call);

}  // namespace thunder::tracer
