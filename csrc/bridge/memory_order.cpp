#include "bridge/memory_order.h"

#include <ATen/core/Tensor.h>

namespace thunder::bridge {

std::optional<std::size_t> place_of_input(const c10::FunctionSchema& schema) {
  const auto place = schema.argumentIndexWithName("input");
  return place ? std::optional(static_cast<std::size_t>(*place)) : std::nullopt;
}

void lay_out_in_order(std::optional<std::size_t> input, std::span<c10::IValue> arguments) {
  at::Tensor images;
  if (input && arguments[*input].toTensor().is_cpu()) images = arguments[*input].toTensor();
  for (c10::IValue& argument : arguments) {
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const at::Tensor& tensor = argument.toTensor();
    const bool is_like_images = images.defined() && tensor.sizes().equals(images.sizes());
    argument = tensor.contiguous(is_like_images ? images.suggest_memory_format() : at::MemoryFormat::Contiguous);
  }
}

}  // namespace thunder::bridge
