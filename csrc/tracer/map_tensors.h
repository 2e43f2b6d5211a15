#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace thunder::tracer {

/// Calls `visit(tensor)` for the defined tensors in a value, also those in lists, in order.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, visit);
  }
}

/// The tensors among arguments, also those in lists, in order.
[[nodiscard]] inline std::vector<at::Tensor> tensors_of(std::span<const c10::IValue> arguments) {
  std::vector<at::Tensor> result;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) { result.push_back(tensor); });
  }
  return result;
}

/// `value` with `map(tensor)` in the place of each tensor in it, in order: of itself or of the elements of a list.
template <typename Map>
c10::IValue map_tensors(const c10::IValue& value, Map&& map) {
  if (value.isTensor()) return map(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& element : value.toListRef()) list.push_back(map(element.toTensor()));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(element.isNone() ? std::nullopt : std::make_optional(map(element.toTensor())));
    }
    return list;
  }
  return value;
}

}  // namespace thunder::tracer
