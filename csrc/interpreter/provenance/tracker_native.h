#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

/// The effect of a function in C on its arguments, as far as a trace is concerned.
enum class NativeEffect : std::uint8_t {
  kOpaque,    ///< may look at everything inside of its arguments
  kNothing,   ///< looks at identities and types only
  kContents,  ///< looks at what its arguments hold, one level deep
  kPairs,     ///< makes a dict of mappings and pairs, whose keys it hashes: `dict`
  kLength,    ///< tells the length of its first argument
  kIdentity,  ///< tells which object its argument is: `id`
  kHash,
  kCallable,
  kNames,             ///< tells which attributes its argument has: `dir`
  kGetItem,           ///< `self[argument]`, if there
  kHasItem,           ///< `argument in self`
  kGetKeys,           ///< the keys of `self`
  kGetContents,       ///< looks at the items of `self` and the arguments
  kCompare,           ///< everything inside of `self` and the arguments
  kSetItem,           ///< `self[argument] = …`
  kDeleteItem,        ///< `del self[argument]`
  kPopItem,           ///< reads and deletes `self[argument]`, if it is there
  kSetDefault,        ///< reads `self[argument]`, and sets it if it is not there
  kUpdate,            ///< sets the items of the arguments in the dict `self`
  kCompareAndChange,  ///< looks at everything, as kCompare, and rewrites `self`
  kAppendOne,         ///< `list.append`
  kAppend,            ///< `list.extend`
  kAdd,               ///< `set.add`
  kDiscard,           ///< `set.discard`
  kChange,            ///< rewrites `self`, having looked at it or not
  kSetAttribute,      ///< `object.__setattr__(owner, name, …)` and the like
  kDictOf,            ///< hands out the `__dict__` of its argument
  kState,             ///< hands out everything that its argument consists of: `object.__reduce_ex__`
  kSubclasses,        ///< hands out the classes that derive from `self`
  kGlobals,           ///< hands out the globals of the frame
};

/// A call by the vectorcall convention: `count` positional arguments, then those that `names` (or null) names.
struct VectorCall {
  PyObject* callable;
  PyObject* const* arguments;
  std::size_t count;
  PyObject* names;
  [[nodiscard]] std::span<PyObject* const> all() const {
    return {arguments, count + (names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names)))};
  }
  [[nodiscard]] PyObject* make() const { return PyObject_Vectorcall(callable, arguments, count, names); }
};

/// A call of C code with its `self`, if any, told apart from its other arguments.
struct NativeCall {
  const void* function = nullptr;  ///< identity of the C code, the same for bound and unbound methods
  py::Borrowed self = nullptr;
  PyObject* const* arguments = nullptr;
  std::size_t count = 0;         ///< positional arguments without `self`
  py::Borrowed names = nullptr;  ///< names of the keyword arguments that follow, or null
};

[[nodiscard]] NativeCall native_call(const VectorCall& call);
/// An address that all objects for one function in C share: bound, unbound and their copies.
[[nodiscard]] const void* native_identity(py::Borrowed callable);
/// The use that a function in C, of which no more is known, makes of the identities of the objects that it gets.
enum class IdentityUse : std::uint8_t {
  kMayTell,      ///< unknown
  kNone,         ///< it does not compare them
  kAsks,         ///< it calls their special methods, or shows which objects they are: `repr`
  kCompares,     ///< it hashes or compares them, functions, too
  kHashes,       ///< as kCompares; those that iterables among its arguments give
  kHashesFirst,  ///< as kHashes for its first argument; it keeps the others
  kRefers,       ///< it makes references, which are one for one object, to tensors, too
  kSame,         ///< it tells whether its two arguments are one object
};
[[nodiscard]] IdentityUse identity_use(const NativeCall& call);
[[nodiscard]] NativeEffect effect_of(const NativeCall& call);
/// Whether the function calls its argument at `index`, `key` of the keyword arguments included: `map`, `sorted`.
[[nodiscard]] bool calls_argument(const NativeCall& call, std::size_t index);
/// Fills the tables behind these. It imports, so that it must neither run under an observer nor wait for itself.
void prepare_native_effects();

}  // namespace thunder::interpreter
