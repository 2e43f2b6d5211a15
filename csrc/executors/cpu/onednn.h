#pragma once

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

#include "ir/dtype.h"

namespace thunder::executors::cpu {

/// PyTorch's operator of that name for oneDNN; nullopt where PyTorch came without.
template <typename Signature>
std::optional<c10::TypedOperatorHandle<Signature>> find_onednn(const char* name) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, ""});
  return op && at::Context::hasMKLDNN() ? std::make_optional(op->template typed<Signature>()) : std::nullopt;
}

/// Whether it computes in that dtype on this processor: in float32, and mostly in bfloat16.
[[nodiscard]] bool onednn_has(ir::Dtype dtype);

}  // namespace thunder::executors::cpu
