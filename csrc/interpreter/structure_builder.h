#pragma once

#include <unordered_map>
#include <vector>

#include "interpreter/structure.h"
#include "interpreter/tracker.h"

namespace thunder::interpreter {

/// Turns what a traced call returned and wrote into a template. To be used before the journal is rolled back, and
/// before the guards are compiled: it may read more of what the program wrote to.
class StructureBuilder {
 public:
  explicit StructureBuilder(Tracker& tracker) : tracker_(tracker) {}

  /// False with a Python exception set when a value cannot be rebuilt.
  bool add_result(py::Borrowed value);
  /// The difference between the state before the trace and now, in the order of first writes.
  bool add_effects(const Journal& journal);

  /// Traced tensors that the computation has to return, in order.
  [[nodiscard]] const std::vector<py::Ref>& outputs() const { return outputs_; }
  [[nodiscard]] Structure finish() { return std::move(structure_); }

 private:
  static constexpr std::uint32_t kFailed = 0xffffffffU;

  std::uint32_t add(py::Borrowed value);
  std::uint32_t add_tensor(py::Borrowed traced);
  std::uint32_t add_external(const Node& node);
  std::uint32_t add_leaf(PartKind kind, std::uint32_t index, py::Borrowed object);
  std::uint32_t add_composite(py::Borrowed value);
  bool add_container(StructurePart& part, py::Borrowed value);
  bool add_instance(StructurePart& part, py::Borrowed value);
  bool add_children(StructurePart& part, py::Borrowed sequence);
  bool add_pairs(StructurePart& part, py::Borrowed dict);
  bool is_shareable(py::Borrowed value);

  bool add_dict_effects(const Record& record, std::uint32_t owner);
  bool add_list_effects(const Record& record, std::uint32_t owner);
  bool add_effect(EffectKind kind, std::uint32_t owner, py::Borrowed key, Py_ssize_t index, py::Borrowed value);
  bool add_copy_effect(EffectKind kind, std::uint32_t owner, py::Borrowed contents);

  Tracker& tracker_;
  Structure structure_;
  std::vector<py::Ref> outputs_;
  std::vector<py::Ref> kept_;
  std::unordered_map<const PyObject*, std::uint32_t> parts_by_object_;
};

}  // namespace thunder::interpreter
