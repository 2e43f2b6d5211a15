#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/instruction.h"
#include "runtime/launch_queue.h"
#include "runtime/memory_pool.h"
#include "runtime/pending_kernels.h"
#include "runtime/program_call.h"

namespace thunder::runtime {

/// Where an output comes from.
struct OutputSource {
  std::uint32_t index = kNoRegister;  ///< kNoRegister: the constant
  bool last = false;                  ///< no later output reads the register
  c10::IValue constant;
  SizeOperand size = {};  ///< in place of the constant, if it has a function
};

/// Who an instruction is for: read on failure only.
struct Origin {
  std::string name;
  Location location;
};

/// Where the value of a symbol comes from.
struct SymbolRegister {
  std::uint32_t symbol = 0;
  std::uint32_t index = 0;  ///< position of the input
  std::uint32_t dim = 0;
  std::int64_t factor = 1;
};

/// The instructions of a program and the tables that they read. Inputs arrive in registers 0 to `input_count - 1`.
struct ProgramCode {
  std::uint32_t input_count = 0;
  std::uint32_t register_count = 0;
  std::vector<Instruction> instructions;
  std::vector<std::uint32_t> releases;  ///< registers that die, instruction after instruction
  std::vector<std::uint32_t> writes;    ///< registers of inputs whose version an instruction bumps
  std::vector<std::uint32_t> unused_inputs;
  std::vector<SymbolRegister> symbols;
  std::uint32_t symbol_count = 0;
  std::vector<InputSize> input_sizes;
  std::vector<SizeCondition> conditions;
  std::vector<OutputSource> outputs;
  std::vector<std::shared_ptr<const void>> states;
  std::vector<std::shared_ptr<const PendingKernels>> pending;
  std::shared_ptr<LaunchQueue> queue;  ///< null: kernels are launched one by one
  std::vector<bool> launches_itself;   ///< by instruction: what waits in the queue is launched before it
  std::vector<Origin> origins;
  std::size_t unboxed_count = 0;
  PoolUser pool_user;

  template <typename Value>
  void run(std::span<Value> inputs, std::span<Value> results) const;
  void execute(Frame& frame) const;
  /// Writes the values of the symbols, by index; the reason why the program is not for these sizes, if it is not.
  template <typename SizeOf>
  [[nodiscard]] std::optional<std::string> read_sizes(const SizeOf& size_of, std::vector<std::int64_t>& values) const;
  /// The values of the symbols, by index. Throws c10::Error for sizes that the program is not for.
  [[nodiscard]] std::vector<std::int64_t> read_symbols(const Frame& frame) const;
  [[nodiscard]] bool is_for(std::span<const at::Tensor> inputs) const;
  [[noreturn]] void rethrow_with_origin(std::size_t instruction) const;
};

}  // namespace thunder::runtime
