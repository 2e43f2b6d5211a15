#pragma once

#include "interpreter/python/cpython_compat.h"

namespace thunder::interpreter {

/// `raise exception from cause`; both are stolen and may be null. True when an exception handled before is raised
/// again, so that this frame is not added to its traceback.
bool raise_exception(PyThreadState* tstate, PyObject* exception, PyObject* cause);

/// NameError about `name` with CPython's text in `format`, and its `name` attribute for suggestions.
void raise_name_error(PyObject* name);
/// For a local or free variable without a value.
void raise_unbound(PyCodeObject* code, int index);
void raise_unbound_free(PyObject* name);

/// Whether `except kind` is allowed; -1 with TypeError if not.
int check_exception_kind(PyObject* kind);
/// Whether `except* kind` is allowed; -1 with TypeError if not.
int check_exception_group_kind(PyObject* kind);
/// Splits `exception` for `except* kind` into new references, either of which may be None; 0 or -1.
int match_exception_group(PyObject* exception, PyObject* kind, PyObject** match, PyObject** rest);

/// Errors of calls with `**mapping` and `*iterable`; the first replaces the pending exception.
void explain_keyword_error(PyObject* callable, PyObject* mapping);
int check_star_arguments(PyObject* callable, PyObject* arguments);

/// Runs signal handlers, pending calls and waiting threads, natively; 0 or -1 with an exception, of which the observer
/// hears.
int handle_pending(PyThreadState* tstate);

}  // namespace thunder::interpreter
