#pragma once

#include <cstddef>
#include <cstdint>

#include "interpreter/python_ref.h"

namespace thunder::interpreter {

/// What a function written in C does to its arguments, as far as a trace is concerned.
enum class NativeEffect : std::uint8_t {
  kOpaque,        ///< may look at everything inside of its arguments
  kNothing,       ///< looks at identities and types only
  kContents,      ///< looks at what its arguments hold, one level deep
  kLength,        ///< of its first argument
  kGetItem,       ///< `self[argument]`, if there
  kGetKeys,       ///< the keys of `self`
  kGetContents,   ///< everything in `self`
  kSetItem,       ///< `self[argument] = …` or `del`
  kTakeItem,      ///< reads and writes `self[argument]`: `dict.pop`, `setdefault`
  kAppend,        ///< `list.append`, `list.extend`
  kChange,        ///< rewrites `self`, having looked at it or not
  kSetAttribute,  ///< `object.__setattr__(owner, name, …)` and the like
};

/// A call of C code with its `self`, if any, told apart from its other arguments.
struct NativeCall {
  const void* function = nullptr;  ///< identity of the C code, the same for bound and unbound methods
  py::Borrowed self = nullptr;
  PyObject* const* arguments = nullptr;
  std::size_t count = 0;  ///< positional arguments without `self`
};

[[nodiscard]] NativeCall native_call(py::Borrowed callable, PyObject* const* arguments, std::size_t count);
[[nodiscard]] NativeEffect effect_of(const NativeCall& call);

}  // namespace thunder::interpreter
