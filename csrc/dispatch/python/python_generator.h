#pragma once

#include <ATen/core/Generator.h>
#include <Python.h>

#include "interpreter/python/python_ref.h"

namespace thunder::dispatch {

/// The class in C of a generator of Python or NumPy, its methods that give the state and take it back, and, of one that
/// draws from a source of bits, the attribute that has this source. Without such methods, its attribute `state` is read
/// and set.
struct GeneratorMethods {
  const char* module;
  const char* type;
  const char* get_state;
  const char* set_state;
  const char* source = nullptr;
};

/// The generator that stands for an object of Python's: one as long as anybody has it. Needs the GIL.
[[nodiscard]] at::Generator generator_of(PyObject* object, const GeneratorMethods& methods);

}  // namespace thunder::dispatch
