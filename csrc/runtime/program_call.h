#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/instruction.h"

namespace thunder::runtime {

/// A value of the program being built. The numbers are the caller's (a trace's value ids); each is defined once.
enum class Slot : std::uint32_t {};
inline constexpr Slot kNoSlot{0xffffffffU};

struct Operand;

/// A list put together at each call because some of its elements are slots.
struct ListOperand {
  c10::TypePtr element_type;
  std::vector<Operand> elements;
};

/// An operand of an instruction: a slot, a constant made once, a size, or a list with slots or sizes in it.
struct Operand {
  std::variant<Slot, c10::IValue, ListOperand, SizeOperand> content;
};

/// Where a result goes: a slot (kNoSlot drops it), or one slot for each element of a list.
using ResultSlots = std::variant<Slot, std::vector<Slot>>;

/// A size that an input must have.
struct InputSize {
  std::uint32_t index = 0;  ///< position of the input
  std::uint32_t dim = 0;
  SizeOperand expected;
};

/// A condition on sizes, for which a program is made.
struct SizeCondition {
  SizeOperand holds;
  std::string text;
};

/// The user's line of an instruction; an empty file is unknown.
struct Location {
  std::string file;
  int line = 0;
};

/// A kernel of an executor: takes its operands from the stack and leaves its results there.
using Kernel = void (*)(const void* state, std::vector<c10::IValue>& stack);

/// Who launches the kernels of a call.
enum class Launches {
  kItself,
  kQueue,  ///< the program's queue, later
  kNobody  ///< there are none
};

/// One call of the program being built.
struct ProgramCall {
  std::optional<c10::OperatorHandle> op;  ///< none: `kernel`
  std::string name;
  Kernel kernel = nullptr;
  std::shared_ptr<const void> state;
  std::vector<Operand> operands;
  std::vector<ResultSlots> results;
  std::vector<Slot> written;  ///< inputs whose memory the call writes to
  Location location;
  bool is_small = false;
  Launches launches = Launches::kItself;
};

}  // namespace thunder::runtime
