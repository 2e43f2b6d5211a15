#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bindings/python_values.h"
#include "executors/callback/callback_executor.h"

namespace thunder::bindings {

/// Calls the Python object `function`, with the GIL, below autograd and autocast: what instructions of callback
/// executors do.
void call_python(const void* function, const executors::callback::CallSite& site, std::vector<c10::IValue>& stack);

/// An executor's implementation of an operation, as functions of Python.
struct PythonImplementation {
  std::string executor;
  std::string operation;
  python::object transform;  ///< an operator, or a function of torch operations
  bool is_operator = false;
  python::object checker;  ///< None: always
};
[[nodiscard]] executors::callback::Implementation make_implementation(const PythonImplementation& described);

}  // namespace thunder::bindings
