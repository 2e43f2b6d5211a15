#pragma once

#include <cstdint>
#include <vector>

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

enum class PartKind : std::uint8_t {
  kConstant,  ///< `object`
  kOutput,    ///< tensor output `index` of the computation
  kInput,     ///< the tensor that the caller passed as input `index`
  kExternal,  ///< object `index` of those that the guards loaded
  kTuple,     ///< `children`; `object` is the type (a named tuple's, or torch.Size)
  kList,
  kDict,  ///< `children` are keys and values in turn
  kSet,   ///< `object`: null, or a set of constants, which it is a copy of
  kFrozenSet,
  kSlice,
  kMethod,    ///< function and self
  kCell,      ///< `children`: what it holds, if anything
  kFunction,  ///< like the function `object`: `children` are defaults, keyword defaults, attributes, then cells
  kCall,      ///< `children`: a callable, the tuple and the dict of its arguments
  kCopy,      ///< `copy.copy(object)`, of something mutable that only its class looks into; or another NaN
  kInstance,  ///< an instance of the class `object`; see StructurePart
};

/// How one object is built. Parts name each other by index; the same part is built once for each call.
struct StructurePart {
  PartKind kind = PartKind::kConstant;
  std::uint32_t index = 0;
  py::Ref object;
  std::vector<std::uint32_t> children;
  /// For kInstance, `children` are items of the base container, if there is one, then values of `attributes`, then
  /// values of `slots`.
  PartKind base = PartKind::kConstant;
  std::vector<py::Ref> attributes;
  std::vector<py::Ref> slots;
};

enum class EffectKind : std::uint8_t {
  kSetItem,      ///< sets an item of a dict
  kDeleteItem,   ///< deletes an item of a dict, if it is there
  kReplaceDict,  ///< all items
  kSetListItem,  ///< `index`
  kExtendList,
  kReplaceList,
  kAddMember,  ///< adds a member to a set
  kDiscardMember,
  kReplaceSet,
  kExtendDeque,
  kReplaceDeque,
  kSetCell,
  kClearCell,
  kSetSlot,
  kDeleteSlot,  ///< if it is there
  kCall,        ///< calls `owner` with the tuple `key` and the dict `value`
};

/// A write to an external object, as every call does it after the computation.
struct Effect {
  EffectKind kind;
  std::uint32_t owner;      ///< part
  std::uint32_t key = 0;    ///< part: of a dict or set, or the name of a slot
  std::uint32_t value = 0;  ///< part
  Py_ssize_t index = 0;
};

[[nodiscard]] bool has_key(EffectKind kind);
[[nodiscard]] bool has_value(EffectKind kind);

/// The objects of one call that a structure is filled with. All borrowed.
struct StructureInputs {
  PyObject* const* outputs = nullptr;
  PyObject* const* inputs = nullptr;
  PyObject* const* externals = nullptr;
};

/// Builds what a call returns and performs its writes, from a template. No user code runs but for kCall.
class Structure {
 public:
  /// A new reference to the result after all effects, or null with a Python exception set.
  PyObject* build(const StructureInputs& inputs) const;

  [[nodiscard]] const std::vector<StructurePart>& parts() const { return parts_; }
  [[nodiscard]] const std::vector<Effect>& effects() const { return effects_; }
  [[nodiscard]] std::uint32_t result() const { return result_; }
  /// Registers of the guard program that `StructureInputs::externals` come from.
  [[nodiscard]] const std::vector<std::uint32_t>& externals() const { return externals_; }
  int visit(visitproc visitor, void* argument) const;

 private:
  friend class StructureBuilder;
  friend class EpilogueReader;
  std::vector<StructurePart> parts_;
  std::vector<Effect> effects_;
  std::vector<std::uint32_t> externals_;
  std::uint32_t result_ = 0;
};

/// A function with the code and the description of another one, without what that holds; null with an exception set.
[[nodiscard]] py::Ref function_like(py::Borrowed function);

}  // namespace thunder::interpreter
