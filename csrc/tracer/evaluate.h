#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "ir/type.h"

namespace thunder::tracer {

/// The metadata of a call's results follow from the data of its arguments.
class DataNeeded final : public UserError {
 public:
  using UserError::UserError;
};

/// Clears the exception that a kernel in Python left. Set by the layer that knows Python.
inline void (*forget_python_error)() = nullptr;
/// Brings the rules for the shapes of collectives, which PyTorch keeps in Python; null: nobody can.
inline void (*load_shapes_of_collectives)() = nullptr;

/// Facts about one tensor that an operator returns.
struct ResultType {
  ir::TypePtr type;            ///< null: undefined
  std::int32_t same_as = -1;   ///< it is this tensor argument itself (position among the tensor arguments)
  std::int32_t alias_of = -1;  ///< it shares memory with this tensor argument
  std::string grad_fn{};       ///< name of the node that autograd gave it; empty: none
};

struct ResultTypes {
  struct Result {
    std::vector<ResultType> tensors;
    bool is_list = false;
    c10::IValue other;  ///< a result that is not a tensor
    bool is_other = false;
  };
  std::vector<Result> results;
  bool from_data = false;  ///< found by running the operator: may differ in another run
  [[nodiscard]] bool has_tensors() const;
  [[nodiscard]] bool has_aliases() const;
};

/// Whether both lie in the same storage; never looks at data.
[[nodiscard]] bool share_memory(const at::Tensor& left, const at::Tensor& right);
/// Whether sizes, strides and offset are the same.
[[nodiscard]] bool is_laid_out_alike(const at::Tensor& left, const at::Tensor& right);

/// A key that is equal for calls with equal results' metadata; empty when there is none (opaque arguments).
[[nodiscard]] std::string metadata_key(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

/// Metadata of the results of a call on trace tensors, found by running it below autocast, with the autograd layer
/// when gradients are on, down to meta kernels. Nothing is recorded.
[[nodiscard]] ResultTypes infer_top(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

/// The results of an operator that no layer above backends decomposes, by its meta kernel. Nothing is recorded.
[[nodiscard]] ResultTypes infer_leaf(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

/// Runs a leaf while nothing is recorded: arguments on the stack become results, trace tensors without a value.
void evaluate_leaf(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace thunder::tracer
