#pragma once

#include <cstdint>
#include <span>

#include "interpreter/guards/guard_memo_builder.h"

namespace thunder::interpreter {

/// Why a part of a guard tree need not be looked at again.
class GuardMemo {
 public:
  /// Whether a memo pays for what hangs on an argument of the call.
  [[nodiscard]] static bool is_worthwhile(const GuardNode& node, PyObject* value);

  /// Those of `candidates` that hold for everything below `roots`, whose registers are filled and, for constants,
  /// whose own checks hold or not. `subject` is the argument that the memo is about, null for constants; `steps` do
  /// without the memo.
  Candidates run(const GuardGraph& graph, std::span<const std::uint32_t> roots, PyObject* subject, StepRange steps,
                 const TensorCheck& check, Candidates candidates, GuardRun& run);
  void forget() { is_valid_ = false; }
  [[nodiscard]] std::uint64_t full_passes() const { return full_passes_; }
  int visit(visitproc visitor, void* argument) const;

 private:
  /// Whether everything is as it was; words of dicts that changed elsewhere only are brought up to date.
  bool holds(const GuardGraph& graph, GuardRun& run);
  bool look_again(const GuardGraph& graph, std::size_t word, GuardRun& run);

  MemoContents contents_;
  PyObject* subject_ = nullptr;  ///< an address, never looked into
  bool is_valid_ = false;
  std::uint32_t failures_ = 0;  ///< in a row
  std::uint64_t full_passes_ = 0;
};

}  // namespace thunder::interpreter
