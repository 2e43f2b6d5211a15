#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ir/trace.h"

namespace thunder::tracer {

/// A call of a `torch.autograd.Function` whose backward the trace cannot hold: it looks at data, or does something
/// besides computing gradients. Its forward is recorded; its backward is the program's own Python, in PyTorch's graph.
///
/// Its symbol is `prims.python_function([values], [inputs], [saved], object)`: what the forward computed, the arguments
/// of the call and what it saved for its backward, None for what is no tensor. The results are the values with a
/// history.
struct PythonFunction {
  const void* type = nullptr;           ///< the class
  std::vector<std::int32_t> outputs;    ///< for each output of the call its number among the values; -1: no tensor
  std::vector<std::int32_t> constants;  ///< values that are marked as not differentiable
  bool is_tuple = false;                ///< whether the call gives a tuple
  bool fills_in_zeros = true;           ///< for the gradients of outputs that nobody differentiated
  std::shared_ptr<void> history{};      ///< object that gives the values their history; belongs to whoever runs it

  [[nodiscard]] bool does_the_same(const PythonFunction& other) const {
    return type == other.type && outputs == other.outputs && constants == other.constants &&
           is_tuple == other.is_tuple && fills_in_zeros == other.fills_in_zeros;
  }
};

[[nodiscard]] const ir::Operator* python_function_operator();
[[nodiscard]] const PythonFunction& python_function_of(const ir::BoundSymbol& symbol, const ir::Trace& trace);

/// Results of the call of `function`, as its symbol names them now: a hook that is recorded renames them.
[[nodiscard]] const ir::ArgumentList& results_of(const PythonFunction& function, const ir::Trace& trace);

/// `prims.set_apart([value]) -> [value]`: a tensor that the caller puts hooks on.
[[nodiscard]] const ir::Operator* set_apart_operator();

/// Operators that stand alone between compiled parts of a trace, so that what goes in and comes out has a history.
[[nodiscard]] bool stands_alone(const ir::Operator& op);

}  // namespace thunder::tracer
