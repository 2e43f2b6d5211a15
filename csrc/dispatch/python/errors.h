#pragma once

#include <Python.h>

#include <string>
#include <type_traits>

#include "interpreter/python/python_ref.h"
#include "ir/trace.h"

namespace thunder::dispatch {

/// Thrown where a Python exception is pending. No std::exception, so that nobody takes it for an error of ours.
struct PendingError {};
/// A new reference that a function of CPython returned; throws PendingError for null.
[[nodiscard]] inline py::Ref checked(PyObject* object) {
  if (object == nullptr) throw PendingError();
  return py::Ref::steal(object);
}

/// Turns the C++ exception that is being handled into the pending Python exception: UserError by its kind,
/// InternalError into `thunder.errors.InternalError`, PyTorch's as PyTorch does it. A Python exception that is pending
/// already stays.
void set_python_error();

/// A function for code in C to call, through which no exception of C++ may pass: it becomes one of Python.
template <auto kFunction>
struct ForPython;

template <typename Result, typename... Arguments, Result (*kFunction)(Arguments...)>
struct ForPython<kFunction> {
  static Result call(Arguments... arguments) {
    try {
      return kFunction(arguments...);
    } catch (...) {
      set_python_error();
    }
    if constexpr (std::is_pointer_v<Result>) return nullptr;
    if constexpr (std::is_integral_v<Result>) return -1;
  }
};

/// Throws PyTorch's carrier of the pending Python exception, which passes through code that does not hold the GIL.
[[noreturn]] void throw_carrier();

/// A RuntimeWarning, from any thread, with the GIL or without it. Throws PyTorch's carrier of a Python exception where
/// the user's filters make an error of it.
void warn_in_python(const std::string& text);

/// The pending exception, which is pending no longer; null without one.
[[nodiscard]] py::Ref take_error();
/// Makes an exception the pending one again.
void restore_error(py::Ref error);
/// Has the trace end in failure where the program catches an error of thunder's own, which eager code does not raise.
void note_caught_refusal(PyObject* exception);

/// Whether a `raise` statement raised the pending exception, and not code in C or the handler of a signal.
[[nodiscard]] bool is_pending_from_statement();
/// Whether an exception of CPython's own speaks of the classes of numbers of a trace, which eager code knows nothing
/// of.
[[nodiscard]] bool names_traced_number(PyObject* exception);

/// Clears the frames that the pending exception, and those that it came after, went through: what their variables hold
/// is released now, not when the exception is.
void release_frames_of_pending();
/// `\n  in file.py, line 12:\n    x = y`, as messages end; empty where the line is not known.
[[nodiscard]] std::string describe_source(const ir::SourceLocation& location);
/// `TypeError: …`, with a line of the user's: `location`, where the operation that failed was called, or the last one
/// of the traceback, or `otherwise`.
[[nodiscard]] std::string describe_error(py::Borrowed error, const ir::SourceLocation& location,
                                         const ir::SourceLocation& otherwise = {});

/// Appends the user's line to the message of the pending exception, when an operation of the traced program failed at
/// `location` and that is where the exception comes from; `otherwise`, where no code of the program raised it. An
/// exception of the user's own stays as it is.
void add_location(const ir::SourceLocation& location, const ir::SourceLocation& otherwise = {});

}  // namespace thunder::dispatch
