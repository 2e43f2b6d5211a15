#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace thunder::tracer {

/// Whether a parameter, or a return value, is an argument that the operator writes to.
[[nodiscard]] inline bool is_written_to(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// Not PyTorch's, and not thunder's: an operator of `torch.library`, or of another package.
[[nodiscard]] bool is_custom(const c10::OperatorHandle& op);

/// Gives numbers (`-> int`) that may follow from the data of its arguments.
[[nodiscard]] bool gives_numbers(const c10::OperatorHandle& op);

/// An operator that does what a custom one does, but writes to copies of its arguments, which it returns behind the
/// results, and returns numbers as tensors without dimensions. Made at first use, in the namespace
/// `thunder_functional`. Nothing for other operators, and where results share memory with arguments or are neither
/// tensors nor numbers.
[[nodiscard]] std::optional<c10::OperatorHandle> functional_form(const c10::OperatorHandle& op);
[[nodiscard]] bool is_functional_form(const c10::OperatorHandle& op);

}  // namespace thunder::tracer
