#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <cstdint>

namespace thunder::dispatch {

// A number that changes from call to call is an input of the computation, as tensors are. For an int that is a symbol
// a tensor without elements stands, whose first size is the int. For a float, and for an int that programs compute with
// as with a float, a tensor stands that holds it.

/// Whether an int may be a symbol: zero and one are numbers, as they are for sizes.
[[nodiscard]] bool may_be_symbol(PyObject* number);
/// Whether a float may be an input: operations refuse those beyond the range of float32, where a tensor in their place
/// becomes infinite.
[[nodiscard]] bool may_be_number(double number);
/// Whether an int may be held by a tensor, and is exact as a float.
[[nodiscard]] bool may_be_held(PyObject* number);
[[nodiscard]] at::Tensor tensor_for_int(std::int64_t number);
[[nodiscard]] at::Tensor tensor_for_float(double number);
[[nodiscard]] at::Tensor tensor_holding_int(std::int64_t number);
/// The tensor that a computation gets for the tensor or number that the guards found. `holds_int`: an int is no symbol.
[[nodiscard]] at::Tensor input_tensor(PyObject* found, bool holds_int = false);

}  // namespace thunder::dispatch
