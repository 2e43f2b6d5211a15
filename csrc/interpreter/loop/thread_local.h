#pragma once

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

/// An instance of `threading.local`, or of a class that derives from it: each thread has attributes of its own in it.
[[nodiscard]] bool is_thread_local(py::Borrowed object);

/// The attributes that this thread has in a `threading.local`. They are made when they are first asked for, by a call
/// of `__init__` that is no part of the program. Null with an exception.
[[nodiscard]] py::Ref thread_dict(py::Borrowed local);

}  // namespace thunder::interpreter
