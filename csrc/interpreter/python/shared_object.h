#pragma once

#include <memory>

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

/// Keeps a Python object alive as a constant of a trace; let go under the GIL.
[[nodiscard]] std::shared_ptr<void> share_object(py::Borrowed object);

}  // namespace thunder::interpreter
