#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "interpreter/guard_tree.h"

namespace thunder::interpreter {

/// Why a part of a guard tree need not be looked at again: words of memory (versions of dicts, pointers in slots,
/// sizes) that were seen when it was looked at last, in an order in which each word tells that the address of the next
/// is still good. While all of them are the same, the verdict on every specialization is the same. The memo keeps
/// nothing alive but types and the plain values that it compared.
class GuardMemo {
 public:
  /// Whether a memo pays for what hangs on an argument of the call.
  [[nodiscard]] static bool is_worthwhile(const GuardNode& node, PyObject* value);

  /// Those of `candidates` that hold for everything below `roots`, whose registers are filled and, for constants,
  /// whose own checks hold or not. `subject` is the argument that the memo is about, null for constants; `steps` do
  /// without the memo.
  Candidates run(GuardTree& tree, std::span<const std::uint32_t> roots, PyObject* subject, StepRange steps,
                 const TensorCheck& check, Candidates candidates, GuardRun& run);
  void forget() { is_valid_ = false; }
  [[nodiscard]] std::uint64_t full_passes() const { return full_passes_; }
  int visit(visitproc visitor, void* argument) const;

 private:
  friend class MemoBuilder;

  struct Word {
    const std::uint64_t* address;
    std::uint64_t expected;
  };
  /// The dict whose version a word is (0: none), and the specializations that its items excluded.
  struct Origin {
    std::uint32_t node;
    Candidates excluded;
  };
  struct TypeVersion {
    PyTypeObject* type;
    std::uint64_t version;
  };

  /// Whether everything is as it was; words of dicts that changed elsewhere only are brought up to date.
  bool holds(GuardTree& tree, GuardRun& run);
  bool look_again(GuardTree& tree, std::size_t word, GuardRun& run);

  std::vector<Word> words_;
  std::vector<Origin> origins_;
  std::vector<TypeVersion> types_;
  std::vector<GuardStep> tensors_;    ///< checked at each run
  std::vector<StepRange> postponed_;  ///< what no word tells: checked at each run
  std::vector<py::Ref> pins_;
  PyObject* subject_ = nullptr;  ///< an address, never looked into
  Candidates verdict_ = 0;
  bool is_valid_ = false;
  std::uint32_t failures_ = 0;  ///< in a row
  std::uint64_t full_passes_ = 0;
};

}  // namespace thunder::interpreter
