#include "dispatch/numbers/number_lists.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dispatch/numbers/number_arguments.h"
#include "dispatch/python/python_tensor.h"
#include "tracer/numbers_as_floats.h"

namespace thunder::dispatch {
namespace {

using interpreter::NativeCall;

bool is_list_or_tuple(PyObject* object) { return PyList_Check(object) || PyTuple_Check(object); }

/// `torch._foreach_…`, and the method of a tensor that does the same. The number comes last among its arguments.
struct ForEach {
  std::string_view name;
  const char* method;
  const char* keyword = nullptr;  ///< names the number, where the method takes none at its place
  std::size_t operands = 0;       ///< tensors besides the first one that stand before the number
};
constexpr std::array kForEach{ForEach{"add", "add"},
                              ForEach{"sub", "sub"},
                              ForEach{"mul", "mul"},
                              ForEach{"div", "div"},
                              ForEach{"pow", "pow"},
                              ForEach{"clamp_min", "clamp_min"},
                              ForEach{"clamp_max", "clamp_max"},
                              ForEach{"maximum", "clamp_min"},
                              ForEach{"minimum", "clamp_max"},
                              ForEach{"lerp", "lerp", nullptr, 1},
                              ForEach{"addcmul", "addcmul", "value", 2},
                              ForEach{"addcdiv", "addcdiv", "value", 2}};

/// The row of a function; null: it is another one.
const ForEach* row_for_each(std::string_view name) {
  constexpr std::string_view kPrefix = "_foreach_";
  if (!name.starts_with(kPrefix)) return nullptr;
  name.remove_prefix(kPrefix.size());
  if (name.ends_with('_')) name.remove_suffix(1);
  const auto* row = std::ranges::find(kForEach, name, &ForEach::name);
  return row == kForEach.end() ? nullptr : row;
}

/// Whether the arguments are lists of one length, of tensors, then the number or a list of numbers. Otherwise it is
/// PyTorch that says what is wrong.
bool has_form_of(const ForEach& row, const NativeCall& call) {
  const std::size_t count = total(call);
  const bool is_alpha = count > call.count && PyUnicode_CompareWithASCIIString(
                                                  PyTuple_GET_ITEM(call.names, count - call.count - 1), "alpha") == 0;
  if (count != row.operands + (is_alpha ? 3 : 2) || call.count + 1 < count || call.count == 0) return false;
  PyObject* const tensors = call.arguments[0];
  if (!is_list_or_tuple(tensors) || Py_SIZE(tensors) == 0) return false;
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* const argument = call.arguments[i];
    const bool is_scale = i + 1 == count;
    if (is_scale && is_traced_number(argument)) continue;
    if (!is_list_or_tuple(argument) || Py_SIZE(argument) != Py_SIZE(tensors) || (is_scale && is_alpha)) return false;
    PyObject* const* const items = PySequence_Fast_ITEMS(argument);
    const bool is_list =
        is_scale ? is_list_of_numbers(argument)
                 : std::all_of(items, items + Py_SIZE(argument), [](PyObject* item) { return is_tensor(item); });
    if (!is_list) return false;
  }
  return true;
}

/// The call for the tensor at `index`. Null with an exception.
PyObject* call_one(const ForEach& row, bool is_in_place, const NativeCall& call, Py_ssize_t index) {
  std::vector<py::Ref> arguments;
  for (std::size_t i = 0; i < total(call); ++i) {
    PyObject* argument = call.arguments[i];
    arguments.push_back(is_list_or_tuple(argument) ? py::Ref::steal(PySequence_GetItem(argument, index))
                                                   : py::Ref::share(argument));
    if (!arguments.back()) return nullptr;
  }
  const std::string name = std::string(row.method) + (is_in_place ? "_" : "");
  const py::Ref method = py::Ref::steal(PyObject_GetAttrString(arguments[0].get(), name.c_str()));
  const bool is_alpha = total(call) > row.operands + 2;
  const char* keyword = is_alpha ? "alpha" : row.keyword;
  const py::Ref names = py::Ref::steal(keyword == nullptr ? nullptr : Py_BuildValue("(s)", keyword));
  if (!method || (keyword != nullptr && !names)) return nullptr;
  std::vector<PyObject*> values;
  for (std::size_t i = 1; i < arguments.size(); ++i) values.push_back(arguments[i].get());
  const std::size_t count = values.size() - (names ? 1 : 0);
  const NativeCall single = interpreter::native_call({method.get(), values.data(), count, names.get()});
  PyObject* result = nullptr;
  const int status = call_with_computed(method.get(), single, &result);
  if (status != 0) return status > 0 ? result : nullptr;
  const auto numbers = replaced(single, is_traced_number, look_at);
  return numbers ? call_with(method.get(), single, *numbers) : nullptr;
}

}  // namespace

int call_for_each(PyObject* callable, const NativeCall& call, PyObject** result) {
  const std::string_view name = name_of(callable);
  const ForEach* row = row_for_each(name);
  const auto has_numbers = [](PyObject* argument) {
    return is_traced_number(argument) || holds_traced_numbers(argument);
  };
  if (row == nullptr || !any_argument(call, has_numbers) || !has_form_of(*row, call)) return 0;
  const bool is_in_place = name.ends_with('_');
  const Py_ssize_t count = Py_SIZE(call.arguments[0]);
  py::Ref results = py::Ref::steal(PyTuple_New(count));
  for (Py_ssize_t i = 0; results && i < count; ++i) {
    PyObject* made = call_one(*row, is_in_place, call, i);
    if (made == nullptr) return -1;
    PyTuple_SET_ITEM(results.get(), i, made);
  }
  if (!results) return -1;
  *result = is_in_place ? Py_NewRef(call.arguments[0]) : results.release();
  return 1;
}

int call_fused(PyObject* callable, const NativeCall& call, PyObject** result) {
  const std::string_view name = name_of(callable);
  if (!name.starts_with("_fused_") || !name.ends_with('_') || call.self != nullptr) return 0;
  std::vector<std::pair<std::string, at::Tensor>> numbers;
  for (std::size_t i = call.count; i < total(call); ++i) {
    if (!is_traced_number(call.arguments[i])) continue;
    const py::Ref tensor = py::Ref::steal(tensor_of_number(call.arguments[i]));
    if (!tensor) return -1;
    if (!is_tensor(tensor.get())) continue;
    PyObject* parameter = PyTuple_GET_ITEM(call.names, static_cast<Py_ssize_t>(i - call.count));
    numbers.emplace_back(PyUnicode_AsUTF8(parameter), unpack_tensor(tensor.get()));
  }
  if (numbers.empty()) return 0;
  const auto arguments = replaced(call, is_traced_number, number_without_tie);
  if (!arguments) return -1;
  const tracer::NumbersAsFloats given("aten::" + std::string(name), std::move(numbers));
  *result = call_with(callable, call, *arguments);
  if (*result == nullptr || given.are_taken()) return *result == nullptr ? -1 : 1;
  Py_CLEAR(*result);
  PyErr_SetString(PyExc_NotImplementedError, "thunder.jit: a number that changes is given to an operator in C");
  return -1;
}

}  // namespace thunder::dispatch
