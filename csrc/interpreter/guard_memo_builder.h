#pragma once

#include <unordered_set>

#include "interpreter/guard_memo.h"

namespace thunder::interpreter {

/// Looks at everything below some nodes and writes down the words that tell when to look again.
class MemoBuilder {
 public:
  MemoBuilder(GuardTree& tree, GuardMemo& memo, GuardRun& run) : tree_(tree), memo_(memo), run_(run) {}
  void build(std::span<const std::uint32_t> roots);

 private:
  void look_at_own(std::uint32_t index, bool in_slot);
  void look_below(std::uint32_t index);
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

  GuardTree& tree_;
  GuardMemo& memo_;
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
