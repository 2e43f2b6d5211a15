#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace thunder::tracer {

using Given = std::span<const c10::IValue>;  ///< the arguments of a call
using Result = std::optional<at::Tensor>;
using Results = std::optional<std::vector<at::Tensor>>;

/// A rule for the results of an operator, by metadata alone; nullopt: the rule does not know the case.
struct ResultRule {
  std::string_view name;
  Result (*one)(Given arguments) = nullptr;
  Results (*several)(Given arguments) = nullptr;  ///< where there is no `one`
};

// Some meta kernels exist in Python only. The first that runs imports SymPy, or torch._dynamo: a second or more, for
// which a network's first answer, or first step, shall not wait. These rules stand for those that networks meet, in the
// cases in which it is plain what they give.
[[nodiscard]] std::span<const ResultRule> element_rules();
[[nodiscard]] std::span<const ResultRule> layer_rules();
/// Fourier transforms on the CPU: their meta kernels take every tensor for one on a GPU.
[[nodiscard]] std::span<const ResultRule> fourier_rules();

/// As elementwise kernels allocate a floating-point result of the first argument's dtype.
[[nodiscard]] Result like_elements(Given arguments);
[[nodiscard]] bool is_float_or_double(const at::Tensor& tensor);
/// An argument that may be left out.
[[nodiscard]] inline bool is_given(const c10::IValue& tensor) {
  return tensor.isTensor() && tensor.toTensor().defined();
}
/// The result of elementwise kernels for contiguous tensors that broadcast.
[[nodiscard]] Result of_contiguous(std::initializer_list<at::Tensor> tensors, const at::TensorOptions& options);
template <std::size_t place>
Result like_contiguous(Given arguments) {
  const at::Tensor& like = arguments[place].toTensor();
  return of_contiguous({like}, like.options());
}

}  // namespace thunder::tracer
