#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "interpreter/guard_program.h"

namespace thunder::interpreter {

/// A set of specializations of one tree, one bit for each.
using Candidates = std::uint64_t;

/// A step of the flat program: a load fills the register of `node` from that of `source`; a check looks at `node`.
struct GuardStep {
  GuardOp op;
  std::uint32_t node = 0;
  std::uint32_t source = 0;  ///< of kSame: the other node
  std::int64_t number = 0;
  PyObject* object = nullptr;
  Candidates needed_by = 0;  ///< what is no candidate any more when a check fails
};

/// Steps [begin, end).
struct StepRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  [[nodiscard]] std::uint32_t size() const { return end - begin; }
};

/// One thing that some specialization reads, once, however many read it. Its register has the same number.
struct GuardNode {
  GuardStep load;
  bool is_constant = false;  ///< `load.object` itself
  std::vector<GuardStep> checks;
  std::vector<std::uint32_t> parts;
  StepRange own;    ///< its load and checks
  StepRange inner;  ///< loads and checks of its parts; a dict's stand for one version
  StepRange below;  ///< `inner` and everything below the parts
};

class GuardMemo;
class MemoBuilder;

/// What a run found: registers, and references that they depend on.
class GuardRun {
 public:
  GuardRun() = default;

 private:
  friend class GuardTree;
  friend class GuardMemo;
  friend class MemoBuilder;
  PyObject** registers_ = nullptr;
  GuardScratch scratch_;
  std::unique_ptr<PyObject*[]> own_;
};

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
  /// The same without a look at what hangs on constants: it is taken for what it was when this was called first.
  Candidates run_arguments_only(const CallArguments& call, const TensorCheck& check, Candidates candidates,
                                GuardRun& run);
  /// What a register of a specialization's program held in an accepting run (borrowed).
  [[nodiscard]] py::Borrowed loaded(const GuardRun& run, std::size_t specialization, std::uint32_t index) const {
    return run.registers_[specializations_[specialization].nodes[index]];
  }
  /// The input tensors of a specialization, in order (borrowed).
  void inputs(const GuardRun& run, std::size_t specialization, PyObject** tensors) const;

  /// Distinct checks of all specializations.
  [[nodiscard]] std::size_t check_count() const;
  /// How often everything below constants was looked at without the memo.
  [[nodiscard]] std::uint64_t full_passes() const;
  int visit(visitproc visitor, void* argument) const;

 private:
  friend class GuardMemo;
  friend class MemoBuilder;

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
  void add_signature(const GuardProgram& program, Candidates bit);
  PyObject* keep(PyObject* object);

  void linearize();
  void emit_own(GuardNode& node);
  void emit_below(GuardNode& node);

  [[nodiscard]] Candidates accepted_signature(const CallArguments& call) const;
  Candidates run_arguments(const CallArguments& call, const TensorCheck& check, Candidates candidates, GuardRun& run,
                           bool nested);
  /// Runs steps in order, leaving out those that no candidate needs.
  Candidates execute(StepRange range, const TensorCheck& check, Candidates candidates, GuardRun& run) const;
  [[nodiscard]] Candidates check_same(Candidates candidates, const GuardRun& run) const;
  GuardMemo& argument_memo(std::uint32_t node);

  std::vector<GuardNode> nodes_;  ///< the first is the call
  std::vector<std::uint32_t> constants_;
  std::vector<GuardStep> steps_;
  std::vector<GuardStep> same_;
  StepRange below_constants_;
  std::unordered_map<Key, std::uint32_t, KeyHash> nodes_by_key_;
  std::vector<Signature> signatures_;
  std::vector<Specialization> specializations_;
  std::vector<py::Ref> kept_;
  py::Ref strings_;  ///< a dict: equal strings are one key
  std::unique_ptr<PyObject*[]> registers_;
  std::unique_ptr<GuardMemo> memo_;
  std::unordered_map<std::uint32_t, std::unique_ptr<GuardMemo>> argument_memos_;
  std::vector<py::Ref> frozen_;  ///< what the registers below constants hold, for runs that do not look
  bool busy_ = false;
};

}  // namespace thunder::interpreter
