#pragma once

#include <string_view>

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors::cpu {

/// An operator of PyTorch that runs as a kernel of ours, or of another library, by itself, on tensors of the CPU.
struct NativeOperation {
  std::string_view name;
  /// Takes the operator's arguments from the end of the stack and puts its results there. False: the stack is as it
  /// was, and PyTorch's kernel shall run.
  bool (*run)(std::vector<c10::IValue>& stack);
};

/// One that gives PyTorch's results to the bit, where those are always the same. Null: not ours.
[[nodiscard]] const NativeOperation* find_native_operation(const ir::BoundSymbol& symbol, const ir::Trace& trace);
void lower_native(const NativeOperation& operation, const ir::BoundSymbol& symbol, const ir::Trace& trace,
                  runtime::ProgramBuilder& builder);

}  // namespace thunder::executors::cpu
