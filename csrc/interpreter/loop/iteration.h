#pragma once

#include "interpreter/python/cpython_compat.h"

#include "interpreter/loop/observer.h"

namespace thunder::interpreter {

/// Unpacks `*iterable`, which becomes what the values are taken from, into `before` values, the list of the rest, and
/// `after` values (`after` < 0: no list), the first at `top[-1]` downwards. False with an exception set, and then
/// nothing was stored. `observer` may be null.
bool unpack_iterable(PyObject** iterable, int before, int after, PyObject** top, Observer* observer);

/// The iterator behind `await object`, a new reference.
PyObject* awaitable_iterator(PyObject* object);
/// The iterator behind `await object`, with the errors of GET_AWAITABLE; `context` is 1 in `async with`'s enter and 2
/// in its exit.
PyObject* get_awaitable(PyObject* object, int context);
/// `aiter(object)` and the awaitable of its `__anext__`, as in `async for`.
PyObject* get_async_iterator(PyObject* object);
PyObject* get_async_next(PyObject* iterator);
#if PY_VERSION_HEX < 0x030d0000
/// Wraps `value` as an asynchronous generator does with a value that it yields.
PyObject* wrap_async_value(PyObject* value);
#endif

/// The bound special method, or null with the error of `with` statements.
PyObject* lookup_context_method(PyObject* manager, bool is_async, bool is_exit);

}  // namespace thunder::interpreter
