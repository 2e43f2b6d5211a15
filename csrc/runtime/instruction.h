#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace thunder::runtime {

/// An integer that each run computes of the program's symbols, by index.
struct SizeOperand {
  std::int64_t (*compute)(const void* state, std::span<const std::int64_t> symbols) = nullptr;
  std::shared_ptr<const void> state;
  std::vector<std::uint32_t> symbols{};  ///< that `compute` reads
  bool is_tensor = false;                ///< given as a tensor that counts as a number where dtypes are promoted
};

/// The state of a run that instructions work on.
struct Frame {
  c10::IValue* registers = nullptr;
  std::vector<c10::IValue>* stack = nullptr;  ///< empty between instructions; for boxed calls
  std::span<const std::int64_t> symbols = {};
};

inline constexpr std::uint32_t kNoRegister = 0xffffffffU;

struct RegisterOperand {
  std::uint32_t index = kNoRegister;
  bool takes = false;  ///< the instruction is the last use and names the register once: the value may be moved out
};

struct ResolvedOperand;
struct ResolvedList {
  c10::TypePtr element_type;
  std::vector<ResolvedOperand> elements;
};
/// An Operand after register assignment.
struct ResolvedOperand {
  std::variant<RegisterOperand, c10::IValue, ResolvedList, SizeOperand> content;
};

using ResultRegisters = std::variant<std::uint32_t, std::vector<std::uint32_t>>;

/// One step of a program. `state` is owned by the program and never changes.
struct Instruction {
  using Function = void (*)(const void* state, Frame& frame);
  Function function = nullptr;
  const void* state = nullptr;
  std::uint32_t releases_end = 0;  ///< ends of this instruction's ranges in the program's tables
  std::uint32_t writes_end = 0;
  bool is_small = false;  ///< one thread is enough
};

/// An instruction's function and state before they enter the program.
struct BoundFunction {
  Instruction::Function function = nullptr;
  std::shared_ptr<const void> state;
};

inline void store(Frame& frame, std::uint32_t index, c10::IValue&& value) {
  if (index != kNoRegister) frame.registers[index] = std::move(value);
}

}  // namespace thunder::runtime
