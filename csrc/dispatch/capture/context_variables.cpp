#include "dispatch/capture/context_variables.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <unordered_set>
#include <utility>

#include "dispatch/capture/substitutes.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/object_parts.h"

namespace thunder::dispatch {
namespace {

PyObject* current_context() { return PyThreadState_Get()->context; }

const void* identity_of(const char* method) {
  const py::Ref function = loaded_function("_contextvars", method);
  return function ? interpreter::native_identity(function.get()) : nullptr;
}

}  // namespace

void ContextVariables::begin() {
  // A thread has a context from when it is first asked for one.
  const py::Ref copy = py::Ref::steal(PyContext_CopyCurrent());
  PyErr_Clear();
  context_ = current_context();
}

// The newest one first: each puts back what it found.
void ContextVariables::restore() {
  const py::SavedError pending;
  for (const Set& each : std::views::reverse(sets_)) {
    if (!each.is_over && PyContextVar_Reset(each.variable.get(), each.token.get()) < 0) PyErr_Clear();
  }
  sets_.clear();
}

bool ContextVariables::is_own(py::Borrowed variable) const {
  return std::ranges::any_of(sets_, [&](const Set& each) { return each.variable.get() == variable && !each.is_over; });
}

int ContextVariables::set(py::Borrowed variable, PyObject* value, PyObject** result) {
  if (current_context() != context_) {
    PyErr_SetString(PyExc_NotImplementedError, "thunder.jit: a ContextVar is set in another context than the caller's");
    return -1;
  }
  // The token tells what was there.
  if (!is_own(variable)) tracker_.reads().record_referent(variable);
  py::Ref before = interpreter::referent_of(variable);
  *result = PyContextVar_Set(variable, value);
  if (*result == nullptr) return -1;
  sets_.push_back({py::Ref::share(variable), py::Ref::share(*result), std::move(before)});
  return 1;
}

int ContextVariables::reset(py::Borrowed variable, PyObject* token, PyObject** result) {
  const auto found = std::ranges::find_if(sets_, [&](const Set& each) { return each.token.get() == token; });
  if (found == sets_.end()) return 0;
  // A token can be used once. Were an older one used up here, nobody could put back the value from before it.
  const bool is_newest = std::none_of(
      std::next(found), sets_.end(), [&](const Set& each) { return each.variable.get() == variable && !each.is_over; });
  if (!is_newest) {
    PyErr_SetString(PyExc_NotImplementedError, "thunder.jit: a ContextVar is reset by an older token than its last");
    return -1;
  }
  if (PyContextVar_Reset(variable, token) < 0) return -1;
  found->is_over = true;
  *result = Py_NewRef(Py_None);
  return 1;
}

int ContextVariables::intercept(const interpreter::NativeCall& call, PyObject** result) {
  static const void* const kSet = identity_of("ContextVar.set");
  static const void* const kReset = identity_of("ContextVar.reset");
  static const void* const kGet = identity_of("ContextVar.get");
  const bool is_method = call.function == kSet || call.function == kReset || call.function == kGet;
  if (!is_method || call.self == nullptr || tracker_.native_calls().in_memoized_call()) return 0;
  const bool is_from_outside = tracker_.provenance().find(call.self) != nullptr;
  if (!is_from_outside || call.names != nullptr) return 0;
  if (call.function == kGet) {
    if (!is_own(call.self)) return 0;
    const py::Ref value = interpreter::referent_of(call.self);
    *result = Py_XNewRef(value.get());
    return value ? 1 : 0;
  }
  if (call.count != 1) return 0;
  return call.function == kSet ? set(call.self, call.arguments[0], result)
                               : reset(call.self, call.arguments[0], result);
}

bool ContextVariables::add_effects(interpreter::StructureBuilder& builder) {
  std::unordered_set<const PyObject*> known;
  const py::Ref method = loaded_function("_contextvars", "ContextVar.set");
  for (const Set& each : sets_) {
    PyObject* const variable = each.variable.get();
    if (!known.insert(variable).second || !is_own(variable)) continue;
    const auto first = std::ranges::find_if(
        sets_, [&](const Set& other) { return other.variable.get() == variable && !other.is_over; });
    const py::Ref value = interpreter::referent_of(variable);
    if (!value || value.get() == first->before.get()) continue;
    const py::Ref arguments = py::Ref::steal(PyTuple_Pack(2, variable, value.get()));
    if (!arguments) return false;
    tracker_.admit_constant(method.get(), interpreter::describe(method.get()));
    if (!builder.add_call_effect(method.get(), arguments.get(), nullptr)) return false;
  }
  return true;
}

}  // namespace thunder::dispatch
