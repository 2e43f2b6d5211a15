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

/// The call that gives `view.parent` with the part that the view `shown` shows replaced by `source` (same shape);
/// nullopt when the view cannot be written through. Throws eager's error where elements of `shown` share memory.
[[nodiscard]] std::optional<OperatorCall> write_through(const ViewOf& view, const at::Tensor& shown,
                                                        const at::Tensor& source);

}  // namespace thunder::tracer
