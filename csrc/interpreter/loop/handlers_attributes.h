#pragma once

// Attributes and methods.

#include <utility>

#include "interpreter/loop/machine.h"
#include "interpreter/loop/observe.h"

namespace thunder::interpreter {

template <bool kObserved>
THUNDER_INLINE PyObject* read_attribute(Machine& m, PyObject* owner, PyObject* name) {
  if constexpr (kObserved) return observed_get_attribute(*m.observer, owner, name);
  return PyObject_GetAttr(owner, name);
}

THUNDER_HANDLER(load_attr) { return m.replace_top(read_attribute<kObserved>(m, m.top(), m.name(argument))); }

/// Leaves `method, self` or `null, callable`: a bound method object is made only when the lookup is not plain.
THUNDER_HANDLER(load_method) {
  PyObject* owner = m.top();
  PyObject* method = nullptr;
  bool unbound = false;
  if constexpr (kObserved)
    method = observed_get_attribute(*m.observer, owner, m.name(argument));
  else
    unbound = _PyObject_GetMethod(owner, m.name(argument), &method) != 0;
  if (method == nullptr) return Step::kError;
  if (unbound) {
    m.top() = method;
    m.push(owner);
  } else {
    m.top() = nullptr;
    Py_DECREF(owner);
    m.push(method);
  }
  return Step::kNext;
}

/// 3.12: the low bit of the argument asks for a method call's two values.
THUNDER_HANDLER(load_attr_or_method) {
  return (argument & 1) != 0 ? load_method<kObserved>(m, argument >> 1) : load_attr<kObserved>(m, argument >> 1);
}

/// 3.13: `method, self` or `callable, null`.
THUNDER_HANDLER(load_attr_or_method_below) {
  if ((argument & 1) == 0) return load_attr<kObserved>(m, argument >> 1);
  const Step step = load_method<kObserved>(m, argument >> 1);
  if (step == Step::kNext && m.peek(2) == nullptr) std::swap(m.top(), m.peek(2));
  return step;
}

/// `super, class, self` becomes the attribute of what `super()` means; bit 1 tells `super(class, self)` from `super()`.
template <bool kObserved>
THUNDER_INLINE PyObject* read_super_attribute(Machine& m, int argument) {
  PyObject* global_super = m.peek(3);
  PyObject* arguments[] = {m.peek(2), m.top()};
  PyObject* proxy = PyObject_Vectorcall(global_super, arguments, static_cast<std::size_t>(argument & 2), nullptr);
  if (proxy == nullptr) return nullptr;
  PyObject* value = read_attribute<kObserved>(m, proxy, m.name(argument >> 2));
  Py_DECREF(proxy);
  return value;
}

THUNDER_HANDLER(load_super_attr) {
  PyObject* value = read_super_attribute<kObserved>(m, argument);
  m.drop(3);
  if (value == nullptr) return Step::kError;
  if ((argument & 1) != 0) m.push(nullptr);
  m.push(value);
  return Step::kNext;
}

/// 3.13: the null stands above the value.
THUNDER_HANDLER(load_super_attr_null_above) {
  PyObject* value = read_super_attribute<kObserved>(m, argument);
  m.drop(3);
  if (value == nullptr) return Step::kError;
  m.push(value);
  if ((argument & 1) != 0) m.push(nullptr);
  return Step::kNext;
}

template <bool kObserved>
THUNDER_INLINE int assign_attribute(Machine& m, PyObject* owner, PyObject* name, PyObject* value) {
  if constexpr (kObserved) return observed_set_attribute(*m.observer, owner, name, value);
  return PyObject_SetAttr(owner, name, value);
}

THUNDER_HANDLER(store_attr) {
  PyObject* owner = m.pop();
  PyObject* value = m.pop();
  const int status = assign_attribute<kObserved>(m, owner, m.name(argument), value);
  Py_DECREF(value);
  Py_DECREF(owner);
  return status == 0 ? Step::kNext : Step::kError;
}

THUNDER_HANDLER(delete_attr) {
  PyObject* owner = m.pop();
  const int status = assign_attribute<kObserved>(m, owner, m.name(argument), nullptr);
  Py_DECREF(owner);
  return status == 0 ? Step::kNext : Step::kError;
}

}  // namespace thunder::interpreter
