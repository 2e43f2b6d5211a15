#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

#include "ir/trace.h"

namespace thunder::executors::cpu {

/// The function that oneDNN applies to each element of a matmul before it stores it, as PyTorch's operators name it.
struct Epilogue {
  std::string name = "none";
  std::string algorithm = "";
  c10::List<std::optional<at::Scalar>> numbers = c10::List<std::optional<at::Scalar>>();
};

/// An operator of one tensor that is an epilogue, too.
struct Activation {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;  ///< after the tensor
  Epilogue epilogue;
};

/// None, where there is no activation.
[[nodiscard]] Epilogue epilogue_of(const std::optional<Activation>& activation);
/// PyTorch's operators for the two, where oneDNN does not take the arguments at the end of the stack.
void run_apart(const c10::OperatorHandle& op, const std::optional<Activation>& activation,
               std::vector<c10::IValue>& stack);

/// Nullopt for what is none, or loses accuracy, infinities or NaNs in oneDNN.
[[nodiscard]] std::optional<Activation> activation_of(const ir::BoundSymbol& symbol, const ir::Trace& trace);

}  // namespace thunder::executors::cpu
