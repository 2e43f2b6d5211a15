#include "dispatch/capture/number_uses.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>

#include "dispatch/numbers/number_arguments.h"
#include "dispatch/numbers/size_origin.h"
#include "interpreter/python/python_ref.h"

namespace thunder::dispatch {
namespace {

struct Row {
  NumberUse use;
  const char* module;
  std::string_view names;  ///< separated by spaces
};
constexpr std::array kRows{
    Row{NumberUse::kOperators, "builtins", "abs all any divmod isinstance max min pow round sorted sum"},
    Row{NumberUse::kOperators, "_bisect", "bisect_left bisect_right"},
    Row{NumberUse::kOperators, "_functools", "reduce"},
    Row{NumberUse::kOperators, "itertools", "accumulate count zip_longest"},
    Row{NumberUse::kOperators, "math", "prod sumprod"},
    Row{NumberUse::kItems, "itertools",
        "batched chain combinations combinations_with_replacement compress cycle dropwhile filterfalse islice pairwise "
        "permutations product starmap takewhile tee"},
};

using Uses = std::unordered_map<const void*, NumberUse>;

void add_member(Uses& uses, py::Borrowed owner, const char* name, NumberUse use) {
  const py::Ref member = py::Ref::steal(PyObject_GetAttrString(owner, name));
  if (member) uses.emplace(interpreter::native_identity(member.get()), use);
  PyErr_Clear();  // other versions of Python have none
}

Uses make_uses() {
  Uses uses;
  for (const Row& row : kRows) {
    const py::Ref module = py::Ref::steal(py::import_module(row.module));
    for (std::string_view names = row.names; module && !names.empty();) {
      const std::string name(names.substr(0, names.find(' ')));
      names.remove_prefix(std::min(name.size() + 1, names.size()));
      add_member(uses, module.get(), name.c_str(), row.use);
      if (name != "chain") continue;
      const py::Ref chain = py::Ref::steal(PyObject_GetAttrString(module.get(), "chain"));
      if (chain) add_member(uses, chain.get(), "from_iterable", row.use);
    }
    PyErr_Clear();
  }
  return uses;
}

bool is_number(PyObject* object) {
  return is_from_sizes(object) || is_traced_number(object) || PyLong_CheckExact(object) || PyFloat_CheckExact(object);
}

}  // namespace

NumberUse use_of_numbers(PyObject* callable, const interpreter::NativeCall& call) {
  if (name_of(callable) == "__instancecheck__") return NumberUse::kOperators;  // a metaclass's own calls `type`'s
  if (module_of(callable) == "_operator") {
    const bool has_numbers_alone = std::all_of(call.arguments, call.arguments + total(call), is_number);
    return has_numbers_alone ? NumberUse::kOperators : NumberUse::kLooks;
  }
  static const Uses uses = make_uses();
  const auto found = uses.find(call.function);
  return found == uses.end() ? NumberUse::kLooks : found->second;
}

}  // namespace thunder::dispatch
