// Functions of NumPy that make one number of several sizes.
#include <torch/csrc/Size.h>

#include <algorithm>
#include <span>

#include "dispatch/capture/substitutes.h"
#include "dispatch/numbers/size_object.h"

namespace thunder::dispatch {
namespace {

using Step = PyObject* (*)(PyObject* left, PyObject* right);

PyObject* one_of(PyObject* left, PyObject* right, int comparison) {
  const int is_left = PyObject_RichCompareBool(left, right, comparison);
  return is_left < 0 ? nullptr : Py_NewRef(is_left == 1 ? left : right);
}

/// The ints of a list or tuple, some of which are sizes; empty: it is something else.
std::span<PyObject* const> sizes_in(PyObject* sequence) {
  if (!PyList_CheckExact(sequence) && !PyTuple_CheckExact(sequence) && !THPSize_Check(sequence)) return {};
  const std::span<PyObject* const> items(PySequence_Fast_ITEMS(sequence), static_cast<std::size_t>(Py_SIZE(sequence)));
  const auto is_int = [](PyObject* item) { return PyLong_CheckExact(item) || is_size_number(item); };
  return std::ranges::all_of(items, is_int) && std::ranges::any_of(items, is_size_number)
             ? items
             : std::span<PyObject* const>();
}

/// As NumPy computes it: a number of its own default type for ints.
PyObject* reduce(std::span<PyObject* const> sizes, Step step) {
  const py::Ref type = loaded_function("numpy", "int_");
  py::Ref result = py::Ref::share(sizes[0]);
  for (PyObject* size : sizes.subspan(1)) {
    if (result) result = py::Ref::steal(step(result.get(), size));
  }
  return result ? size_as(type.get(), result.get()) : nullptr;
}

}  // namespace

void add_array_substitutes(interpreter::TrackerOptions& options) {
  struct Row {
    const char* function;
    Step step;
  };
  constexpr Row kRows[] = {{"prod", PyNumber_Multiply},
                           {"sum", PyNumber_Add},
                           {"max", [](PyObject* left, PyObject* right) { return one_of(left, right, Py_GE); }},
                           {"min", [](PyObject* left, PyObject* right) { return one_of(left, right, Py_LE); }}};
  for (const Row& row : kRows) {
    const py::Ref function = loaded_function("numpy", row.function);
    if (!function) continue;
    options.substitute(function.get(), [step = row.step](PyObject* const* arguments, std::size_t count, PyObject* names,
                                                         PyObject** result) {
      const bool is_one = count == 1 && (names == nullptr || PyTuple_GET_SIZE(names) == 0);
      const std::span<PyObject* const> sizes = is_one ? sizes_in(arguments[0]) : std::span<PyObject* const>();
      if (sizes.empty()) return 0;
      *result = reduce(sizes, step);
      return *result == nullptr ? -1 : 1;
    });
  }
}

}  // namespace thunder::dispatch
