#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <pybind11/pybind11.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/trace.h"

namespace thunder::bindings {

namespace python = pybind11;

/// A value of a trace as Python sees it: what is known of it without data.
struct TracedValue {
  ir::ValueId id{};
  ir::TypePtr type;
  std::string name;
};

/// A Python object as the layers below keep it.
[[nodiscard]] std::shared_ptr<void> share(const python::object& object);
[[nodiscard]] python::handle function_in(const std::shared_ptr<const void>& owner);

/// Gives the Python object for a value of a trace.
using ShowValue = std::function<python::object(ir::ValueId)>;

/// How a call shows a number where the operation takes a tensor (`x + 2`).
enum class NumberForm : std::uint8_t {
  kNumber,
  kTensor,  ///< a tensor that gives way to other dtypes as a number does: operators that are not PyTorch's want one
};

/// Positional and keyword arguments of a call, as printed traces write it: without what equals a default.
struct PythonCall {
  python::tuple positional;
  python::dict keywords;
};
[[nodiscard]] PythonCall call_of(const ir::BoundSymbol& symbol, const ir::Trace& trace, const ShowValue& show,
                                 NumberForm form = NumberForm::kNumber);
[[nodiscard]] PythonCall call_of(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                 NumberForm form = NumberForm::kNumber);
[[nodiscard]] python::object to_python(const ir::Argument& argument, const ir::Trace& trace, const ShowValue& show);

/// The tensors that a function returned (a tensor, None, or containers of these), in order.
[[nodiscard]] std::vector<at::Tensor> tensors_in(const python::object& result);
/// Puts what a function returned on the stack, by the schema; without one, as one list of tensors. Throws UserError for
/// an object of another kind.
void push_results(const c10::OperatorHandle* op, const python::object& result, std::vector<c10::IValue>& stack);

/// Runs `call`. A Python exception in it stays pending, with `context` behind its message, and PendingError is thrown.
template <typename Function>
auto or_pending(const std::string& context, const Function& call) -> decltype(call());

/// Adds `context` to the pending exception.
void add_context(const std::string& context);
[[noreturn]] void throw_pending();

template <typename Function>
auto or_pending(const std::string& context, const Function& call) -> decltype(call()) {
  try {
    return call();
  } catch (python::error_already_set& error) {
    error.restore();
  }
  add_context(context);
  throw_pending();
}

/// The line that a symbol comes from, for messages: `\n  called in model.py, line 12`.
[[nodiscard]] std::string describe_location(const ir::SourceLocation& location);

/// Adds `_C.trace`: values, symbols, and the editing of traces.
void init_trace(python::module_& module);
/// Adds `_C.extend`: executors made in Python.
void init_extend(python::module_& module);

}  // namespace thunder::bindings
