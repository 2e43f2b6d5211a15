#pragma once

#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "interpreter/guards/guard_graph.h"

namespace thunder::interpreter {

/// Words of memory (versions of dicts, pointers in slots, sizes) that were seen when a part of a guard tree was looked
/// at last, in an order in which each word tells that the address of the next is still good. While all of them are the
/// same, the verdict on every specialization is the same. Keeps nothing alive but types and the plain values that were
/// compared.
struct MemoContents {
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

  std::vector<Word> words;
  std::vector<Origin> origins;  ///< one for each word
  std::vector<TypeVersion> types;
  std::vector<GuardStep> tensors;    ///< checked at each run
  std::vector<TensorMemory> memory;  ///< where these tensors were when they were looked at last
  std::vector<StepRange> postponed;  ///< no word tells whether these hold: checked at each run
  std::vector<py::Ref> pins;
  Candidates verdict = ~Candidates{0};
};

/// Looks at everything below some nodes and writes down the words that tell when to look again.
class MemoBuilder {
 public:
  MemoBuilder(const GuardGraph& graph, GuardRun& run) : graph_(graph), run_(run) {}
  /// `subject` is the argument that the memo is about; null for constants.
  [[nodiscard]] MemoContents build(std::span<const std::uint32_t> roots, PyObject* subject);

 private:
  void look_at_own(std::uint32_t index, bool in_slot);
  void look_below(std::uint32_t root);
  /// `pending`: nodes below which is to be looked next, the last one first.
  void look_at_parts(std::uint32_t index, std::vector<std::uint32_t>& pending);
  void look_at_part(std::uint32_t part, std::uint32_t owner);
  void look_at_check(const GuardStep& check, std::uint32_t position, PyObject* value, bool in_slot);
  void settle(const GuardStep& check, bool holds);
  /// Words that stand for the contents of a container; false when there are none.
  bool open(std::uint32_t index, PyObject* value);
  bool open_new(std::uint32_t index, PyObject* value);
  /// How the load of a part is told by words: by those of the owner (`slot` null), or by the contents of a slot.
  bool find_slot(const GuardStep& load, std::uint32_t owner, PyObject*** slot, PyObject** value);
  bool find_member(PyObject* owner, PyObject* name, PyObject*** slot, PyObject** value);
  void postpone(const GuardNode& part);
  bool add_type(PyTypeObject* type);
  void add_word(const void* address);
  void add_version(std::uint32_t node, PyObject* dict);

  const GuardGraph& graph_;
  MemoContents memo_;
  GuardRun& run_;
  std::unordered_set<std::uint32_t> opened_;
  std::size_t block_ = kNoBlock;  ///< the word of the dict whose items are looked at
  static constexpr std::size_t kNoBlock = ~std::size_t{0};
};

/// Changes when an attribute of the type or of its bases does; 0: unknown.
[[nodiscard]] inline std::uint64_t version_of_type(const PyTypeObject* type) {
#if PY_VERSION_HEX < 0x030c0000
  if ((type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) == 0) return 0;
#endif
  return type->tp_version_tag;
}

}  // namespace thunder::interpreter
