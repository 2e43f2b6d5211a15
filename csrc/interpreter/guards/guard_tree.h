#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "interpreter/guards/distinct_objects.h"
#include "interpreter/guards/guard_graph.h"
#include "interpreter/guards/guard_program.h"

namespace thunder::interpreter {

class GuardMemo;

/// The guards of up to 64 specializations of one callable, merged: what several of them read is one node, what several
/// of them expect is one check. A run goes through the tree once, with the set of specializations that may still serve
/// the call; the call's own arguments come first. What hangs on constants (the callable, globals, types) is looked at
/// through a memo of versions and addresses. Runs under the GIL; runs no user code, raises nothing.
class GuardTree {
 public:
  static constexpr std::size_t kCapacity = 64;

  GuardTree();
  GuardTree(const GuardTree&) = delete;
  GuardTree& operator=(const GuardTree&) = delete;
  ~GuardTree();

  /// Adds a specialization; `tensor_guards` says which guard of `TensorCheck` stands for each of its inputs.
  std::size_t add(const GuardProgram& program, std::span<const std::uint32_t> tensor_guards);
  [[nodiscard]] std::size_t size() const { return specializations_.size(); }
  [[nodiscard]] bool is_full() const { return size() == kCapacity; }

  /// Those of `candidates` whose guards hold.
  Candidates run(const CallArguments& call, const TensorCheck& check, Candidates candidates, GuardRun& run);
  /// As `run`, but without a look at objects that hang on constants: they are taken for what they were when this was
  /// called first.
  Candidates run_arguments_only(const CallArguments& call, const TensorCheck& check, Candidates candidates,
                                GuardRun& run);
  /// The object that a register of a specialization's program held in an accepting run (borrowed).
  [[nodiscard]] py::Borrowed loaded(const GuardRun& run, std::size_t specialization, std::uint32_t index) const {
    return run.registers[specializations_[specialization].nodes[index]];
  }
  /// The input tensors of a specialization, in order (borrowed).
  void inputs(const GuardRun& run, std::size_t specialization, PyObject** tensors) const;

  /// Distinct checks of all specializations.
  [[nodiscard]] std::size_t check_count() const;
  /// How often everything below constants was looked at without the memo.
  [[nodiscard]] std::uint64_t full_passes() const;
  int visit(visitproc visitor, void* argument) const;

 private:
  struct Key {
    std::uint32_t parent;
    GuardOp op;
    std::int64_t number;
    const PyObject* object;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  struct Signature {
    std::size_t positional;
    py::Ref names;
    Candidates accepted_by;
  };
  struct Specialization {
    std::vector<std::uint32_t> nodes;   ///< by register of its program
    std::vector<std::uint32_t> inputs;  ///< nodes
  };

  std::uint32_t node_for(const Key& key, bool is_constant);
  std::uint32_t constant_node(PyObject* object);
  void add_check(std::uint32_t node, GuardStep check, Candidates bit);
  void add_distinct(const DistinctRegisters& registers, const std::vector<std::uint32_t>& nodes, Candidates bit);
  void add_signature(const GuardProgram& program, Candidates bit);
  PyObject* keep(PyObject* object);

  void linearize();
  void emit_own(GuardNode& node);
  void emit_below(GuardNode& node);

  [[nodiscard]] Candidates accepted_signature(const CallArguments& call) const;
  Candidates run_arguments(const CallArguments& call, const TensorCheck& check, Candidates candidates, GuardRun& run,
                           bool nested);
  [[nodiscard]] Candidates check_relations(Candidates candidates, const GuardRun& run);
  GuardMemo& argument_memo(std::uint32_t node);

  GuardGraph graph_;  ///< the first node is the call
  std::vector<std::uint32_t> constants_;
  std::vector<GuardStep> same_;
  std::vector<DistinctObjects> distinct_;
  StepRange below_constants_;
  std::unordered_map<Key, std::uint32_t, KeyHash> nodes_by_key_;
  std::vector<Signature> signatures_;
  std::vector<Specialization> specializations_;
  std::vector<py::Ref> kept_;
  py::Ref strings_;  ///< a dict: equal strings are one key
  std::unique_ptr<PyObject*[]> registers_;
  std::unique_ptr<GuardMemo> memo_;
  std::unordered_map<std::uint32_t, std::unique_ptr<GuardMemo>> argument_memos_;
  std::vector<py::Ref> frozen_;  ///< objects in registers below constants, for runs that do not look there
  bool busy_ = false;
};

}  // namespace thunder::interpreter
