#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

enum class GuardOp : std::uint8_t {
  // loads: nothing is loaded when the step cannot be made
  kLoadArgument,       ///< positional argument `number` of the call
  kLoadKeyword,        ///< keyword argument at position `number` among the names
  kLoadDict,           ///< the `__dict__` of an instance or module
  kLoadItem,           ///< `owner[number]` of a list, tuple or deque
  kLoadCell,           ///< contents of a cell
  kLoadDescriptor,     ///< `owner.object` through a C descriptor
  kLoadDictItem,       ///< `owner[object]` of a dict; `number` may be kHeldWeakly
  kLoadTypeAttribute,  ///< `object` in the MRO of a type
  kLoadFunctionPart,   ///< part `number` of a Python function, a FunctionPart
  kLoadReferent,       ///< target of a weak reference, or value of a context variable
  kLoadCall,           ///< result of a function in C, called without arguments
  kLoadConversion,     ///< result of the function `object` in C, called with the owner
  // checks: all but kAbsent fail for nothing
  kPresent,
  kAbsent,
  kIs,        ///< is `object`
  kEqual,     ///< equals the constant `object`
  kType,      ///< is of the type `object`
  kLength,    ///< has `number` items
  kTruth,     ///< is empty or not as `number` says
  kKeys,      ///< ordered keys of the dict are the tuple `object`; `number` may be kHeldWeakly
  kMembers,   ///< members of the set, as an iteration gives them, are the tuple `object`; as kKeys
  kContains,  ///< the set has the member `object` or not, as bit 0 of `number` says; as kKeys
  kState,     ///< C code sees in it what it saw in `object`: the StateKind is `number`
  kTensor,    ///< a tensor or number of the type `object` that matches tensor guard `number`
  kSame,      ///< is the other register's object
  kNotSame,   ///< is another object than the other register's
};

[[nodiscard]] constexpr bool is_load(GuardOp op) { return op <= GuardOp::kLoadConversion; }
/// Whether a check is about two registers.
[[nodiscard]] constexpr bool is_relation(GuardOp op) { return op == GuardOp::kSame || op == GuardOp::kNotSame; }

/// Where a tensor and its metadata lie: addresses to prefetch, never looked into.
using TensorMemory = std::array<const void*, 5>;

/// Checks a tensor, or a number that an input stands for, against what it was at trace time. Supplied by the layer that
/// knows torch.
struct TensorCheck {
  bool (*matches)(const void* guards, std::size_t guard, PyObject* tensor) = nullptr;
  /// Metadata of a tensor as text.
  std::string (*describe)(PyObject* tensor) = nullptr;
  /// Addresses that `matches` will read.
  TensorMemory (*memory)(PyObject* tensor) = nullptr;
  const void* guards = nullptr;
};

/// The arguments of a call in the vectorcall convention.
struct CallArguments {
  PyObject* const* values = nullptr;
  std::size_t positional = 0;
  PyObject* names = nullptr;
};

/// References that loads make, for as long as a run needs what hangs on them.
class GuardScratch {
 public:
  GuardScratch() = default;
  GuardScratch(const GuardScratch&) = delete;
  GuardScratch& operator=(const GuardScratch&) = delete;
  ~GuardScratch() {
    for (PyObject* object : owned_) Py_DECREF(object);
  }
  PyObject* keep(PyObject* owned) {
    if (owned != nullptr) owned_.push_back(owned);
    return owned;
  }

 private:
  std::vector<PyObject*> owned_;
};

/// Whether weak references stand for keys in the object of a step.
[[nodiscard]] bool is_held_weakly(GuardOp op, std::int64_t number);

/// The object that a load gives, other than one of an argument, or null. Runs no user code and raises nothing.
[[nodiscard]] PyObject* load_part(GuardOp op, py::Borrowed owner, std::int64_t number, py::Borrowed object,
                                  GuardScratch& scratch);
/// Whether a check other than kTensor and kSame holds for `value`, which may be null.
[[nodiscard]] bool check_value(GuardOp op, py::Borrowed value, std::int64_t number, py::Borrowed object);

}  // namespace thunder::interpreter
