#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "interpreter/guards/guard_infos.h"
#include "interpreter/guards/guard_step.h"
#include "interpreter/provenance/provenance.h"
#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

/// One line of a specialization's guards: a load fills register `target`, a check looks at register `source`.
struct GuardInstruction {
  GuardOp op;
  std::uint32_t target = 0;
  std::uint32_t source = 0;
  std::uint32_t guard = 0;  ///< index of its GuardInfo
  std::int64_t number = 0;
  PyObject* object = nullptr;  ///< owned by the program
};

/// Registers of objects of one type that the program writes to, and of others that it only reads. No object of the
/// first is one of the others.
struct DistinctRegisters {
  std::vector<std::uint32_t> written;
  std::vector<std::uint32_t> read;
  std::uint32_t first_guard = 0;  ///< index of the GuardInfo of the first one that is written to; the others follow
};

/// A guard that a call does not meet.
struct GuardFailure {
  std::uint32_t guard;
  std::string found;            ///< never what was expected, in words
  std::uint32_t unchecked = 0;  ///< guards on parts of what this one is about, which the call has not
};

/// How many positional arguments and which keywords a call has.
[[nodiscard]] std::string describe_call(std::size_t positional, py::Borrowed names);

/// The guards of one specialization, parents before their parts. `GuardTree` runs them, together with those of other
/// specializations.
class GuardProgram {
 public:
  /// Guards that do not hold for a call, in order; what hangs on something that is missing or of another type is left
  /// out. For messages: slow.
  [[nodiscard]] std::vector<GuardFailure> failures(const CallArguments& call, const TensorCheck& check) const;

  /// Returns the tensors and ints that a call has where guards look at some, with the expressions of `info`, as far as
  /// they can be found. Slow.
  [[nodiscard]] std::vector<std::pair<std::string, py::Ref>> values(const CallArguments& call) const;

  [[nodiscard]] GuardInfo info(std::size_t guard) const { return infos_.at(guard); }
  [[nodiscard]] std::size_t guard_count() const { return infos_.size(); }
  [[nodiscard]] std::size_t positional() const { return positional_; }
  [[nodiscard]] py::Borrowed keyword_names() const { return names_.get(); }
  [[nodiscard]] std::uint32_t register_count() const { return register_count_; }
  /// Registers that hold the same object in every run.
  [[nodiscard]] const std::vector<std::pair<std::uint32_t, PyObject*>>& constants() const {
    return constant_registers_;
  }
  [[nodiscard]] const std::vector<GuardInstruction>& instructions() const { return instructions_; }
  [[nodiscard]] const std::vector<DistinctRegisters>& distinct() const { return distinct_; }
  /// Whether an object that was a key is dead, so that the guards hold for no call any more.
  [[nodiscard]] bool is_dead() const;
  /// For garbage collection.
  int visit(visitproc visitor, void* argument) const;

 private:
  friend class GuardCompiler;

  /// Whether a call has these arguments, by number and name.
  [[nodiscard]] bool takes(const CallArguments& call) const;

  std::vector<GuardInstruction> instructions_;
  GuardInfos infos_;
  std::vector<DistinctRegisters> distinct_;
  std::vector<py::Ref> kept_;
  std::vector<std::pair<std::uint32_t, PyObject*>> constant_registers_;
  std::uint32_t register_count_ = 0;
  std::size_t positional_ = 0;
  py::Ref names_;  ///< names of the keyword arguments, a tuple or null
};

}  // namespace thunder::interpreter
