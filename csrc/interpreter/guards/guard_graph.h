#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "interpreter/guards/guard_step.h"

namespace thunder::interpreter {

/// A set of specializations of one guard tree, one bit for each.
using Candidates = std::uint64_t;

/// A step of the flat program: a load fills the register of `node` from that of `source`; a check looks at `node`.
struct GuardStep {
  GuardOp op;
  std::uint32_t node = 0;
  std::uint32_t source = 0;  ///< for kSame the other node
  std::int64_t number = 0;
  PyObject* object = nullptr;
  Candidates needed_by = 0;  ///< candidates that a failure of the check rules out
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

/// The registers of one run, and references that they depend on.
struct GuardRun {
  PyObject** registers = nullptr;
  GuardScratch scratch;
  std::unique_ptr<PyObject*[]> own;  ///< the registers of a run that has some of its own
};

/// Things that guards look at and steps that look at them, in order of execution.
struct GuardGraph {
  std::vector<GuardNode> nodes;
  std::vector<GuardStep> steps;

  /// Runs steps in order, leaving out those that no candidate needs. Gives the candidates that are left.
  Candidates execute(StepRange range, const TensorCheck& check, Candidates candidates, GuardRun& run) const;
};

}  // namespace thunder::interpreter
