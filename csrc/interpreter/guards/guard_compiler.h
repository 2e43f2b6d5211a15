#pragma once

#include <map>
#include <vector>

#include "interpreter/guards/guard_program.h"
#include "interpreter/provenance/provenance.h"
#include "interpreter/python/tensor_hooks.h"

namespace thunder::interpreter {

/// Turns what a program read into guards: the call's arguments first, then what hangs on constants, parents before
/// their parts.
class GuardCompiler {
 public:
  GuardCompiler(const Provenance& provenance, const TensorHooks& hooks) : provenance_(provenance), hooks_(hooks) {}

  /// `names` are the keyword arguments' (a tuple or null).
  GuardProgram compile(std::size_t positional, py::Borrowed names);
  /// The register that holds the object of a node when the guards hold for a call.
  [[nodiscard]] std::uint32_t register_of(const Node& node) const { return node.id; }

 private:
  void emit_node(const Node& node);
  void emit_read(const Node& owner, const Read& read);
  /// Finds the tables of hooks whose keys may be others at each call.
  void find_hook_tables();
  /// Emits a read of a table of hooks, or of one that belongs to it, whatever the keys are; false: it is another read.
  bool emit_hook_read(const Node& owner, const Read& read);
  void emit_fact(const Node& owner, const Read& read);
  void emit_expectation(const Read& read, std::uint32_t loaded, std::uint32_t guard);
  void emit_object(const Node& part, std::uint32_t guard);
  void emit_instance_dict(const Node& owner, const Node& dict);
  /// Guards that the objects which the program wrote to are none of the others that it read: it saw what it wrote
  /// wherever it met the same object again, and nowhere else.
  void emit_distinct_objects();
  GuardInstruction& emit(GuardOp op, std::uint32_t target, std::uint32_t source, std::uint32_t guard);
  std::uint32_t add_info(const Node& owner, const Read& read);
  PyObject* keep(py::Borrowed object);
  /// Sets the key of a step, or its tuple of keys, which is held weakly where it may be.
  void set_key(GuardInstruction& step, py::Borrowed key);
  /// The weak reference by which an object is guarded that is a key, or a member of a tuple of all keys; null where the
  /// key is to be held itself.
  [[nodiscard]] py::Ref reference_to(py::Borrowed object, bool is_member) const;

  const Provenance& provenance_;
  const TensorHooks& hooks_;
  GuardProgram program_;
  std::map<const Node*, std::vector<const Node*>> parts_;
  std::map<const Node*, std::vector<std::int64_t>> hook_tables_;  ///< with their keys in order
  std::vector<GuardInstruction> same_checks_;
  std::uint32_t scratch_register_ = 0;
};

}  // namespace thunder::interpreter
