#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "interpreter/provenance.h"
#include "interpreter/python_ref.h"

namespace thunder::interpreter {

enum class GuardOp : std::uint8_t {
  kLoadArgument,    ///< registers[target] = positional argument `number`
  kLoadKeyword,     ///< registers[target] = keyword argument at position `number` among the names
  kLoadDict,        ///< registers[target] = `__dict__` of registers[source]
  kLoadItem,        ///< registers[target] = registers[source][number] of a list or tuple
  kLoadCell,        ///< registers[target] = contents of the cell registers[source]; empty must be expected
  kLoadDescriptor,  ///< registers[target] = registers[source].object through its C descriptor
  kLoadDictItem,    ///< registers[target] = registers[source][object]
  kDictAbsent,      ///< registers[source] has no `object`
  kBeginDict,       ///< when the dict registers[source] has the version of cache `target`, go on at `number`
  kEndDict,         ///< the checks of the dict registers[source] held for its present version
  kBeginType,       ///< the same for the version of a type and its attributes
  kEndType,
  kTypeAttribute,  ///< the MRO of the type registers[source] has `expected` (null: nothing) under `object`
  kIs,             ///< registers[source] is `object`
  kEqual,          ///< registers[source] equals the constant `object`
  kType,           ///< the type of registers[source] is `object`
  kSame,           ///< registers[source] is registers[target]
  kLength,         ///< registers[source] has `number` items
  kTruth,          ///< registers[source] is empty or not as `number` says
  kKeys,           ///< ordered keys of the dict registers[source] are the tuple `object`
  kMembers,        ///< the set registers[source] has the members of `object`
  kTensor,         ///< registers[source] is like input tensor `number` and becomes it
  kAccept,         ///< all guards hold
};

struct GuardInstruction {
  GuardOp op;
  std::uint32_t target = 0;
  std::uint32_t source = 0;
  std::uint32_t guard = 0;  ///< index of its GuardInfo
  std::int64_t number = 0;
  PyObject* object = nullptr;    ///< owned by the program
  PyObject* expected = nullptr;  ///< owned by the program
};

/// For people: what a guard is about.
struct GuardInfo {
  std::string expression;
  std::string expected;
  ir::SourceLocation location;
};

/// Checks a tensor against what it was at trace time. Supplied by the layer that knows torch.
struct TensorCheck {
  bool (*matches)(const void* guards, std::size_t input, PyObject* tensor) = nullptr;
  const void* guards = nullptr;
};

/// The arguments of a call in the vectorcall convention.
struct CallArguments {
  PyObject* const* values = nullptr;
  std::size_t positional = 0;
  PyObject* names = nullptr;
};

/// References that a run makes and its results may depend on.
class GuardScratch {
 public:
  GuardScratch() = default;
  GuardScratch(const GuardScratch&) = delete;
  GuardScratch& operator=(const GuardScratch&) = delete;
  ~GuardScratch() {
    for (PyObject* object : owned_) Py_DECREF(object);
  }
  void keep(PyObject* owned) { owned_.push_back(owned); }

 private:
  std::vector<PyObject*> owned_;
};

/// The guards of a specialization as a flat program over registers, which hold borrowed objects. Runs under the GIL,
/// runs no user code and raises nothing. Registers keep their contents between runs, so that a dict or type whose
/// version is the one seen last need not be looked into again.
class GuardProgram {
 public:
  static constexpr std::int64_t kAccepted = -1;

  /// `kAccepted`, or the index of the guard that failed. `tensors` receives the input tensors (borrowed).
  std::int64_t run(const CallArguments& call, const TensorCheck& check, PyObject** tensors,
                   GuardScratch& scratch) const;

  /// What register `index` held in the last run that was accepted.
  [[nodiscard]] py::Borrowed loaded(std::uint32_t index) const { return registers_[index]; }
  [[nodiscard]] const GuardInfo& info(std::int64_t guard) const { return infos_[static_cast<std::size_t>(guard)]; }
  [[nodiscard]] std::size_t guard_count() const { return infos_.size(); }
  [[nodiscard]] std::size_t positional() const { return positional_; }
  [[nodiscard]] py::Borrowed keyword_names() const { return names_.get(); }
  /// Registers that hold the same object in every run.
  [[nodiscard]] const std::vector<std::uint32_t>& constant_registers() const { return constant_registers_; }
  [[nodiscard]] const std::vector<GuardInstruction>& instructions() const { return instructions_; }
  /// For garbage collection.
  int visit(visitproc visitor, void* argument) const;

 private:
  friend class GuardCompiler;
  [[nodiscard]] bool step(const GuardInstruction& instruction, GuardScratch& scratch) const;

  std::vector<GuardInstruction> instructions_;
  std::vector<GuardInfo> infos_;
  std::vector<py::Ref> constants_;
  std::vector<std::uint32_t> constant_registers_;
  std::size_t positional_ = 0;
  py::Ref names_;  ///< of the keyword arguments, a tuple or null
  std::unique_ptr<PyObject*[]> registers_;
  std::unique_ptr<std::uint64_t[]> versions_;
};

}  // namespace thunder::interpreter
