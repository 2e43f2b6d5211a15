#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <cstdint>
#include <memory>

#include "dispatch/numbers/number_trace.h"
#include "interpreter/python/python_ref.h"

namespace thunder::dispatch {

/// The object that the program gets for `tensor.item()`: it acts as a Python float or int, and knows which value of the
/// trace it is. Arithmetic is recorded. Whoever looks at the number itself (a branch, `print`, an index, C code) ties
/// the trace to what it is now; comparisons tie it to their outcome only. It is no instance of float for C code, so
/// that all of C code comes through its slots; for Python it is one. A bool is tied, and given as it is. New reference
/// or null.
PyObject* make_traced_number(std::shared_ptr<NumberTrace> trace, const tracer::Number& number);

[[nodiscard]] ir::ValueId value_of_number(PyObject* traced);
/// `float` or `int`.
[[nodiscard]] PyTypeObject* python_type_of(PyObject* traced);
/// The trace tensor that stands for a number in operations (new reference, or null with an exception set).
PyObject* tensor_of_number(PyObject* traced);
/// As above where a dtype can hold the number; else NotImplementedError, as eager raises.
PyObject* tensor_of_number(PyObject* traced, at::ScalarType dtype);
/// The number itself, to which the trace is tied from now on (new reference, or null with an exception set).
PyObject* look_at(PyObject* traced);
/// The number as it is in this call, to which the trace is not tied (new reference).
PyObject* number_without_tie(PyObject* traced);
/// The number as a size (size_number.h) that follows from data, or as an int where that is no symbol: for arguments of
/// PyTorch that may be sizes. Null without an exception: it is no int from data, or looked at.
PyObject* as_size(PyObject* traced);
/// The number as a size where it can be one, else the number itself, which is looked at. Null with an exception.
PyObject* size_or_number(PyObject* traced);
/// A list or tuple as a tuple with sizes, as above, in the place of numbers (new reference). Null with an exception.
PyObject* tuple_of_sizes(PyObject* sequence);
/// The numbers in a container that are looked at.
enum class Inside : std::uint8_t {
  kNumbers,          ///< all of them, sizes (size_number.h), too
  kNumbersFromData,  ///< but for sizes
  kSizes,            ///< but for sizes, which ints from data become
};
/// Looks at the numbers in lists, tuples, dicts and slices, and puts them in the place of the traced ones. False with
/// an exception set.
bool look_inside(PyObject* container, Inside which = Inside::kNumbers);
/// `int(number)` or `float(number)`, as a traced number.
PyObject* convert_number(PyObject* traced, PyTypeObject* type);
/// `function(number)` for a function of the module `math` called `name`, as a traced number; the trace is tied to what
/// `isnan` and its like say. Null without an exception when it is not recorded.
PyObject* compute_math(PyObject* function, const char* name, PyObject* traced);
/// As above, for a function of two arguments, one of which or both are traced numbers.
PyObject* compute_math(PyObject* function, const char* name, PyObject* left, PyObject* right);

/// 0, or -1 with an exception.
int init_traced_number();

}  // namespace thunder::dispatch
