#pragma once

#include <cstdint>

#include "interpreter/provenance/tracker_native.h"

namespace thunder::dispatch {

/// The use that C functions of Python make of the numbers that they are given.
enum class NumberUse : std::uint8_t {
  kLooks,      ///< unknown: it may look at the numbers themselves
  kOperators,  ///< by Python's operators alone, or it asks for their class
  kItems,      ///< as kOperators of those in iterables; those by themselves are counts
};

[[nodiscard]] NumberUse use_of_numbers(PyObject* callable, const interpreter::NativeCall& call);

}  // namespace thunder::dispatch
