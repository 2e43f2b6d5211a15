#pragma once

#include <unordered_map>
#include <vector>

#include "interpreter/provenance/tracker.h"
#include "interpreter/structures/structure.h"

namespace thunder::interpreter {

/// Turns what a traced call returned and wrote into a template. To be used before the journal is rolled back, and
/// before the guards are compiled: it may read more of what the program wrote to.
class StructureBuilder {
 public:
  explicit StructureBuilder(Tracker& tracker) : tracker_(tracker) {}

  /// False with a Python exception set when a value cannot be rebuilt.
  bool add_result(py::Borrowed value);
  /// The difference between the state before the trace and now, in the order of first writes.
  bool add_effects(Journal& journal);
  /// A call that each run shall make after the writes added so far; a dict or null for no keywords.
  bool add_call_effect(py::Borrowed callable, py::Borrowed arguments, py::Borrowed keywords);

  /// Traced tensors, numbers and sizes that the computation has to return, in order.
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
  bool add_weak_reference(StructurePart& part, py::Borrowed value);
  bool add_dict_view(StructurePart& part, py::Borrowed view, py::Borrowed mapping);
  bool add_instance(StructurePart& part, py::Borrowed value);
  /// The array over the memory of a tensor that the computation gives.
  bool add_array(StructurePart& part, py::Borrowed tensor);
  bool shows_other_memory(py::Borrowed array);
  bool add_native(StructurePart& part, py::Borrowed value);
  bool add_function(StructurePart& part, py::Borrowed function);
  /// `callable(*arguments, **keywords)`; both are new containers.
  bool add_call(StructurePart& part, py::Borrowed callable, py::Ref arguments, py::Ref keywords);
  bool add_children(StructurePart& part, py::Borrowed sequence);
  bool add_order(StructurePart& part, py::Borrowed container) const;
  bool add_pairs(StructurePart& part, py::Borrowed dict);
  [[nodiscard]] bool is_size(py::Borrowed value) const;
  bool is_shareable(py::Borrowed value);
  bool is_shareable_function(py::Borrowed function);

  /// `now` is what the program left in the container, cell or slot.
  bool add_record(const Record& record, std::uint32_t owner, const py::Ref& now);
  bool add_dict_effects(const Record& record, std::uint32_t owner, const py::Ref& now);
  bool add_changed_items(const Record& record, std::uint32_t owner, py::Borrowed now);
  bool add_list_effects(const Record& record, std::uint32_t owner, const py::Ref& now);
  bool add_set_effects(const Record& record, std::uint32_t owner, const py::Ref& now);
  bool add_deque_effects(const Record& record, std::uint32_t owner, const py::Ref& now);
  bool add_effect(EffectKind kind, std::uint32_t owner, py::Borrowed key, py::Borrowed value);
  bool add_copy_effect(EffectKind kind, std::uint32_t owner, py::Ref contents);

  Tracker& tracker_;
  Structure structure_;
  std::vector<py::Ref> outputs_;
  std::vector<py::Ref> kept_;
  int depth_ = 0;  ///< how many objects hold the one that is added
  std::unordered_map<const PyObject*, std::uint32_t> parts_by_object_;
};

}  // namespace thunder::interpreter
