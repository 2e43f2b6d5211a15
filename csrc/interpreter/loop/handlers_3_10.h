#pragma once

// Handlers for CPython 3.10 alone: block stack, exceptions as three values, absolute jumps, cells behind the locals.

#include "interpreter/loop/handlers_calls.h"
#include "interpreter/loop/handlers_containers.h"
#include "interpreter/loop/handlers_control.h"
#include "interpreter/loop/handlers_exceptions.h"
#include "interpreter/loop/handlers_operators.h"
#include "interpreter/loop/handlers_statements.h"
#include "interpreter/loop/handlers_values.h"

namespace thunder::interpreter {

THUNDER_HANDLER(rot_two) { return swap<kObserved>(m, 2); }
THUNDER_HANDLER(rot_n) {
  PyObject* top = m.top();
  for (int i = 1; i < argument; ++i) m.peek(i) = m.peek(i + 1);
  m.peek(argument) = top;
  return Step::kNext;
}
THUNDER_HANDLER(rot_three) { return rot_n<kObserved>(m, 3); }
THUNDER_HANDLER(rot_four) { return rot_n<kObserved>(m, 4); }
THUNDER_HANDLER(dup_top) { return copy<kObserved>(m, 1); }
THUNDER_HANDLER(dup_top_two) {
  m.push(Py_NewRef(m.peek(2)));
  m.push(Py_NewRef(m.peek(2)));
  return Step::kNext;
}

template <bool kObserved, binaryfunc kOperation>
THUNDER_INLINE Step binary(Machine& m) {
  if constexpr (kObserved) return replace_two(m, observed_binary(*m.observer, m.peek(2), m.top(), kOperation));
  return replace_two(m, kOperation(m.peek(2), m.top()));
}
/// Integers and floats first.
template <bool kObserved, binaryfunc kOperation, char kSymbol>
THUNDER_INLINE Step arithmetic(Machine& m) {
  PyObject* left = m.peek(2);
  PyObject* right = m.top();
  std::int64_t a, b;
  if (small_integer(left, &a) && small_integer(right, &b))
    return replace_two(m, PyLong_FromLongLong(kSymbol == '+' ? a + b : kSymbol == '-' ? a - b : a * b));
  if (PyFloat_CheckExact(left) && PyFloat_CheckExact(right)) {
    const double x = PyFloat_AS_DOUBLE(left);
    const double y = PyFloat_AS_DOUBLE(right);
    return replace_two(m, PyFloat_FromDouble(kSymbol == '+' ? x + y : kSymbol == '-' ? x - y : x * y));
  }
  return binary<kObserved, kOperation>(m);
}
/// `left + right` of strings whose result goes to the local variable that holds `left` grows it in place.
template <bool kObserved, binaryfunc kOperation>
THUNDER_INLINE Step add(Machine& m) {
  PyObject* left = m.peek(2);
  if (!PyUnicode_CheckExact(left) || !PyUnicode_CheckExact(m.top()) || m.pc->opcode != STORE_FAST ||
      m.locals[m.pc->argument] != left)
    return arithmetic<kObserved, kOperation, '+'>(m);
  PyObject* right = m.pop();
  m.pop();
  m.set_local(m.pc->argument, nullptr);
  PyUnicode_Append(&left, right);
  Py_DECREF(right);
  return m.push_result(left);
}
THUNDER_HANDLER(binary_add) { return add<kObserved, PyNumber_Add>(m); }
THUNDER_HANDLER(inplace_add) { return add<kObserved, PyNumber_InPlaceAdd>(m); }
THUNDER_HANDLER(binary_subtract) { return arithmetic<kObserved, PyNumber_Subtract, '-'>(m); }
THUNDER_HANDLER(inplace_subtract) { return arithmetic<kObserved, PyNumber_InPlaceSubtract, '-'>(m); }
THUNDER_HANDLER(binary_multiply) { return arithmetic<kObserved, PyNumber_Multiply, '*'>(m); }
THUNDER_HANDLER(inplace_multiply) { return arithmetic<kObserved, PyNumber_InPlaceMultiply, '*'>(m); }
THUNDER_HANDLER(binary_power) { return binary<kObserved, power>(m); }
THUNDER_HANDLER(inplace_power_op) { return binary<kObserved, inplace_power>(m); }
THUNDER_HANDLER(binary_matrix_multiply) { return binary<kObserved, PyNumber_MatrixMultiply>(m); }
THUNDER_HANDLER(inplace_matrix_multiply) { return binary<kObserved, PyNumber_InPlaceMatrixMultiply>(m); }
THUNDER_HANDLER(binary_modulo) { return binary<kObserved, PyNumber_Remainder>(m); }
THUNDER_HANDLER(inplace_modulo) { return binary<kObserved, PyNumber_InPlaceRemainder>(m); }
THUNDER_HANDLER(binary_floor_divide) { return binary<kObserved, PyNumber_FloorDivide>(m); }
THUNDER_HANDLER(inplace_floor_divide) { return binary<kObserved, PyNumber_InPlaceFloorDivide>(m); }
THUNDER_HANDLER(binary_true_divide) { return binary<kObserved, PyNumber_TrueDivide>(m); }
THUNDER_HANDLER(inplace_true_divide) { return binary<kObserved, PyNumber_InPlaceTrueDivide>(m); }
THUNDER_HANDLER(binary_lshift) { return binary<kObserved, PyNumber_Lshift>(m); }
THUNDER_HANDLER(inplace_lshift) { return binary<kObserved, PyNumber_InPlaceLshift>(m); }
THUNDER_HANDLER(binary_rshift) { return binary<kObserved, PyNumber_Rshift>(m); }
THUNDER_HANDLER(inplace_rshift) { return binary<kObserved, PyNumber_InPlaceRshift>(m); }
THUNDER_HANDLER(binary_and) { return binary<kObserved, PyNumber_And>(m); }
THUNDER_HANDLER(inplace_and) { return binary<kObserved, PyNumber_InPlaceAnd>(m); }
THUNDER_HANDLER(binary_or) { return binary<kObserved, PyNumber_Or>(m); }
THUNDER_HANDLER(inplace_or) { return binary<kObserved, PyNumber_InPlaceOr>(m); }
THUNDER_HANDLER(binary_xor) { return binary<kObserved, PyNumber_Xor>(m); }
THUNDER_HANDLER(inplace_xor) { return binary<kObserved, PyNumber_InPlaceXor>(m); }

/// Jumps to an absolute offset.
THUNDER_INLINE Step jump_to(Machine& m, int target) {
  m.pc = m.data->instructions() + target;
  return eval_breaker_is_set(m.tstate) ? Step::kPending : Step::kNext;
}
THUNDER_HANDLER(jump_absolute) { return jump_to(m, argument); }
template <bool kObserved>
THUNDER_INLINE Step jump_to_if(Machine& m, int target, int wanted) {
  PyObject* condition = m.pop();
  const int value = truth<kObserved>(m, condition);
  Py_DECREF(condition);
  if (value < 0) return Step::kError;
  return value == wanted ? jump_to(m, target) : Step::kNext;
}
THUNDER_HANDLER(pop_jump_if_true_to) { return jump_to_if<kObserved>(m, argument, 1); }
THUNDER_HANDLER(pop_jump_if_false_to) { return jump_to_if<kObserved>(m, argument, 0); }
template <bool kObserved>
THUNDER_INLINE Step jump_to_or_pop(Machine& m, int target, int wanted) {
  const int value = truth<kObserved>(m, m.top());
  if (value < 0) return Step::kError;
  if (value == wanted)
    m.pc = m.data->instructions() + target;
  else
    Py_DECREF(m.pop());
  return Step::kNext;
}
THUNDER_HANDLER(jump_if_true_or_pop_to) { return jump_to_or_pop<kObserved>(m, argument, 1); }
THUNDER_HANDLER(jump_if_false_or_pop_to) { return jump_to_or_pop<kObserved>(m, argument, 0); }

THUNDER_HANDLER(load_global_plain) { return m.push_result(read_global<kObserved>(m, m.name(argument))); }

THUNDER_INLINE int cell_index(const Machine& m, int argument) { return m.frame->f_code->co_nlocals + argument; }
THUNDER_HANDLER(load_cell) { return load_deref<kObserved>(m, cell_index(m, argument)); }
THUNDER_HANDLER(store_cell) { return store_deref<kObserved>(m, cell_index(m, argument)); }
THUNDER_HANDLER(delete_cell) { return delete_deref<kObserved>(m, cell_index(m, argument)); }
THUNDER_HANDLER(load_closure) {
  m.push(Py_NewRef(m.locals[cell_index(m, argument)]));
  return Step::kNext;
}
THUNDER_HANDLER(load_class_cell) {
  const PyCodeObject* code = m.frame->f_code;
  PyObject* name = PyTuple_GET_ITEM(code->co_freevars, argument - PyTuple_GET_SIZE(code->co_cellvars));
  PyObject* value = lookup_item(m.frame->f_locals, name);
  if (value == nullptr && PyErr_Occurred()) return Step::kError;
  return value != nullptr ? m.push_result(value) : load_cell<kObserved>(m, argument);
}

THUNDER_HANDLER(call_plain) {
  PyObject** base = m.sp - argument - 1;
  return call_values<kObserved>(m, base, *base, base + 1, argument);
}
THUNDER_HANDLER(call_plain_keywords) {
  PyObject* names = m.pop();
  m.keyword_names = names;
  const Step step = call_plain<kObserved>(m, argument);
  Py_DECREF(names);
  return step;
}
THUNDER_HANDLER(call_method) { return call<kObserved>(m, argument); }
THUNDER_HANDLER(call_plain_spread) {
  PyObject* keywords = (argument & 1) != 0 ? m.pop() : nullptr;
  PyObject* arguments = m.pop();
  PyObject* callable = m.top();
  PyObject* result = nullptr;
  if (normalize_spread(callable, &arguments, &keywords) == 0)
    result = call_spread<kObserved>(callable, arguments, keywords);
  Py_DECREF(arguments);
  Py_XDECREF(keywords);
  return finish_call(m, m.sp - 1, result);
}
THUNDER_HANDLER(dict_merge_plain) { return dict_merge<kObserved>(m, argument); }

THUNDER_HANDLER(make_named_function) {
  PyObject* name = m.pop();
  PyObject* code = m.pop();
  auto* function = reinterpret_cast<PyFunctionObject*>(PyFunction_NewWithQualName(code, m.frame->f_globals, name));
  Py_DECREF(code);
  Py_DECREF(name);
  if (function == nullptr) return Step::kError;
  if ((argument & 8) != 0) function->func_closure = m.pop();
  if ((argument & 4) != 0) function->func_annotations = m.pop();
  if ((argument & 2) != 0) function->func_kwdefaults = m.pop();
  if ((argument & 1) != 0) function->func_defaults = m.pop();
  if (m.observer != nullptr) m.observer->made(reinterpret_cast<PyObject*>(function));
  m.push(reinterpret_cast<PyObject*>(function));
  return Step::kNext;
}

/// `subject, kind, names` becomes `attributes or subject, whether it matched`.
THUNDER_HANDLER(match_class_flag) {
  PyObject* values = match_class(m.peek(3), m.peek(2), argument, m.top(), kObserved ? m.observer : nullptr);
  m.drop(2);
  if (values == nullptr) return Step::kError;
  const bool matched = values != Py_None;
  if (matched) {
    Py_SETREF(m.top(), values);
  } else {
    Py_DECREF(values);
  }
  m.push(Py_NewRef(matched ? Py_True : Py_False));
  return Step::kNext;
}
THUNDER_HANDLER(match_keys_flag) {
  const Step step = match_keys<kObserved>(m, 0);
  if (step == Step::kNext) m.push(Py_NewRef(m.top() != Py_None ? Py_True : Py_False));
  return step;
}
THUNDER_HANDLER(copy_dict_without_keys) {
  PyObject* keys = m.top();
  PyObject* rest = PyDict_New();
  int status = rest != nullptr ? PyDict_Update(rest, m.peek(2)) : -1;
  for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(keys); ++i)
    status = PyDict_DelItem(rest, PyTuple_GET_ITEM(keys, i));
  if (status < 0) Py_CLEAR(rest);
  return m.replace_top(rest);
}

/// Tells `async with` from plain `await` by the instructions before.
THUNDER_HANDLER(get_awaitable_after) {
  const std::ptrdiff_t offset = m.pc - m.data->instructions();
  const int before = offset > 1 ? m.pc[-2].opcode : 0;
  const int before_that = offset > 2 ? m.pc[-3].opcode : 0;
  int context = 0;
  if (before == BEFORE_ASYNC_WITH) context = 1;
  if (before == WITH_EXCEPT_START || (before == CALL_FUNCTION && before_that == DUP_TOP)) context = 2;
  return m.replace_top(get_awaitable(m.top(), context));
}

THUNDER_HANDLER(yield_value_wrapped) {
  PyObject* value = m.pop();
  if ((m.frame->f_code->co_flags & CO_ASYNC_GENERATOR) != 0) {
    PyObject* wrapped = wrap_async_value(value);
    Py_DECREF(value);
    if (wrapped == nullptr) return Step::kError;
    value = wrapped;
  }
  m.result = value;
  return Step::kYield;
}

/// While the receiver yields, the instruction is repeated at each resumption.
THUNDER_HANDLER(yield_from) {
  PyObject* result = nullptr;
  switch (send_value(m, &result)) {
    case PYGEN_NEXT:
      --m.frame->f_lasti;
      m.result = result;
      return Step::kYield;
    case PYGEN_RETURN:
      Py_DECREF(m.top());
      m.top() = result;
      return Step::kNext;
    case PYGEN_ERROR:
      break;
  }
  return Step::kError;
}

THUNDER_INLINE void push_block(Machine& m, int type, int handler) {
  PyTryBlock& block = m.frame->f_blockstack[m.frame->f_iblock++];
  block.b_type = type;
  block.b_handler = handler;
  block.b_level = static_cast<int>(m.sp - m.frame->f_valuestack);
}
THUNDER_INLINE int handler_offset(const Machine& m, int argument) {
  return static_cast<int>(m.pc - m.data->instructions()) + argument;
}

/// Takes the exception that was handled before off the stack.
THUNDER_INLINE void pop_handled_exception(Machine& m) {
  _PyErr_StackItem* item = m.tstate->exc_info;
  PyObject* type = item->exc_type;
  PyObject* value = item->exc_value;
  PyObject* traceback = item->exc_traceback;
  item->exc_type = m.pop();
  item->exc_value = m.pop();
  item->exc_traceback = m.pop();
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

THUNDER_HANDLER(setup_finally) {
  push_block(m, SETUP_FINALLY, handler_offset(m, argument));
  return Step::kNext;
}
THUNDER_HANDLER(pop_block) {
  --m.frame->f_iblock;
  return Step::kNext;
}
THUNDER_HANDLER(pop_except_block) {
  --m.frame->f_iblock;
  pop_handled_exception(m);
  return Step::kNext;
}

/// Raises the three topmost values again, with an argument as if where they were raised first.
THUNDER_HANDLER(reraise_triple) {
  if (argument != 0) m.frame->f_lasti = m.frame->f_blockstack[m.frame->f_iblock - 1].b_handler;
  PyObject* type = m.pop();
  PyObject* value = m.pop();
  PyErr_Restore(type, value, m.pop());
  return Step::kUnwind;
}

THUNDER_HANDLER(jump_if_not_exc_match) {
  PyObject* kind = m.pop();
  PyObject* raised = m.pop();
  const int status = check_exception_kind(kind);
  const int matches = status == 0 ? PyErr_GivenExceptionMatches(raised, kind) : 0;
  Py_DECREF(raised);
  Py_DECREF(kind);
  if (status < 0) return Step::kError;
  if (matches == 0) m.pc = m.data->instructions() + argument;
  return Step::kNext;
}

THUNDER_HANDLER(end_async_for_block) {
  PyObject* type = m.pop();
  if (!PyErr_GivenExceptionMatches(type, PyExc_StopAsyncIteration)) {
    PyObject* value = m.pop();
    PyErr_Restore(type, value, m.pop());
    return Step::kUnwind;
  }
  Py_DECREF(type);
  const PyTryBlock& block = m.frame->f_blockstack[--m.frame->f_iblock];
  while (m.sp - m.frame->f_valuestack > block.b_level + 3) Py_XDECREF(m.pop());
  pop_handled_exception(m);
  Py_DECREF(m.pop());
  return Step::kNext;
}

THUNDER_HANDLER(setup_with) {
  const Step step = enter_context<kObserved>(m, false);
  if (step != Step::kNext) return step;
  PyObject* entered = m.pop();
  push_block(m, SETUP_FINALLY, handler_offset(m, argument));
  m.push(entered);
  return Step::kNext;
}
THUNDER_HANDLER(setup_async_with) {
  PyObject* entered = m.pop();
  push_block(m, SETUP_FINALLY, handler_offset(m, argument));
  m.push(entered);
  return Step::kNext;
}
THUNDER_HANDLER(with_except_start_triple) {
  PyObject* arguments[] = {nullptr, m.top(), m.peek(2), m.peek(3)};
  return m.push_result(PyObject_Vectorcall(m.peek(7), arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

THUNDER_HANDLER(import_star_frame) {
  PyObject* module = m.pop();
  int status = PyFrame_FastToLocalsWithError(m.frame);
  if (status == 0) {
    status = import_star(module, m.frame->f_locals);
    PyFrame_LocalsToFast(m.frame, 0);
  }
  Py_DECREF(module);
  return status == 0 ? Step::kNext : Step::kError;
}

}  // namespace thunder::interpreter
