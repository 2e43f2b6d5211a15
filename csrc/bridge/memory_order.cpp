#include "bridge/memory_order.h"

#include <ATen/core/Tensor.h>

namespace thunder::bridge {

void lay_out_in_order(const c10::FunctionSchema& schema, std::span<c10::IValue> arguments) {
  const auto place = schema.argumentIndexWithName("input");
  at::Tensor images;
  if (place && arguments[*place].toTensor().is_cpu()) images = arguments[*place].toTensor();
  for (c10::IValue& argument : arguments) {
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const at::Tensor& tensor = argument.toTensor();
    const bool is_like_images = images.defined() && tensor.sizes().equals(images.sizes());
    argument = tensor.contiguous(is_like_images ? images.suggest_memory_format() : at::MemoryFormat::Contiguous);
  }
}

}  // namespace thunder::bridge
