#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors::callback {

/// Where a function is called: for the form of its arguments, for what it must return, and for messages.
struct CallSite {
  std::string executor;
  std::string operation;                    ///< as printed traces call it: `mine.linear.default`
  const c10::OperatorHandle* op = nullptr;  ///< its schema; null: takes tensors and gives tensors
  std::vector<ir::TypePtr> results{};       ///< one for each tensor, lists flattened; null: none
  runtime::Location location{};

  /// `executor 'mine': mine.linear.default: <what>`, then the user's line.
  [[nodiscard]] std::string message(const std::string& what) const;
};

/// Compares what a function returned with what was declared.
class ResultCheck {
 public:
  /// Before the call: looks at the arguments, from the stack.
  ResultCheck(const CallSite& site, const std::vector<c10::IValue>& stack);
  /// After it: results on the stack have the declared shapes, dtypes and devices, and memory of their own, or a
  /// UserError says which has not. One with other strides is replaced by a copy.
  void apply(std::vector<c10::IValue>& stack) const;

 private:
  [[nodiscard]] at::Tensor checked(const at::Tensor& result, std::size_t index) const;

  const CallSite& site_;
  std::vector<const c10::StorageImpl*> memory_;  ///< storages of the arguments
};

}  // namespace thunder::executors::callback
