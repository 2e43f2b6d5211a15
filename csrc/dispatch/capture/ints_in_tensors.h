#pragma once

#include <Python.h>

#include <map>

#include "interpreter/python/python_ref.h"
#include "ir/trace.h"

namespace thunder::dispatch {

/// The ints that a program has read from tensors of its trace, by the values of those: a tensor that is read twice
/// (`x[n : n + 1]` of a tensor `n`) holds one number, and one that was computed from others holds an expression of
/// their numbers.
class IntsInTensors {
 public:
  /// The number of a value; null: it was not read.
  [[nodiscard]] PyObject* find(ir::ValueId value) const;
  /// `number` was read from a value of the trace.
  void add(const ir::Trace& trace, ir::ValueId value, PyObject* number);

 private:
  [[nodiscard]] py::Ref operand(const ir::Argument& argument) const;

  std::map<ir::ValueId, py::Ref> numbers_;
};

}  // namespace thunder::dispatch
