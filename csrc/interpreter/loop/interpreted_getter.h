#pragma once

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

/// A function in Python that does what an attrgetter, itemgetter or methodcaller of `operator` does, so that what it
/// reads is seen; null for all other objects, without an exception.
[[nodiscard]] py::Ref interpreted_getter(py::Borrowed callable);
/// Returns the arguments that a getter of `operator` keeps, `(positional, keywords)`; null for all other
/// objects, without an exception.
[[nodiscard]] py::Ref parameters_of_getter(py::Borrowed callable);
/// The function, or other object, that a `functools.partial` or a bound method calls in the end.
[[nodiscard]] py::Ref innermost_callable(py::Borrowed callable);
/// Whether a call of it runs a function in Python at once, which is observed whoever makes the call.
[[nodiscard]] bool is_called_in_python(py::Borrowed callable);
/// A function in Python that calls one in C, so that the call is seen when C code makes it.
[[nodiscard]] py::Ref interpreted_call(py::Borrowed function);
/// Calls an object from outside, with the arguments of a vectorcall, for code in C: what it does is observed.
[[nodiscard]] PyObject* call_from_c(PyObject* callable, PyObject* const* arguments, std::size_t flagged_count,
                                    PyObject* names);
/// A function in Python that calls a special method of `owner` which its class in Python has from C by another name
/// (`__getattr__ = dict.__getitem__`) or as a function (`__call__ = staticmethod(items.append)`); null, without an
/// exception, for other special methods.
[[nodiscard]] py::Ref interpreted_alias(py::Borrowed owner, py::Borrowed special);
/// Whether the class of `owner` has such a special method: from C by another name, as a function, or as a property.
[[nodiscard]] bool is_alias(py::Borrowed owner, py::Borrowed special);
/// `text.format(*arguments, **keywords)` in Python, which shows the attributes and items that it reads; null with an
/// exception.
[[nodiscard]] py::Ref interpreted_format(py::Borrowed text, py::Borrowed arguments, py::Borrowed keywords);
/// A generator that gives what the iterator gives, so that each value is seen when C code takes it.
[[nodiscard]] py::Ref interpreted_iterator(py::Borrowed iterator);
/// Whether a function is one of those above.
[[nodiscard]] bool is_stand_in(py::Borrowed function);
/// The function that an `interpreted_call` calls, and any other function itself.
[[nodiscard]] py::Ref behind_stand_in(py::Borrowed function);
/// Makes it ready; it runs Python code, so that it must not run under an observer.
void prepare_interpreted_getters();

}  // namespace thunder::interpreter
