#pragma once

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace thunder::executors::cpu {

/// PyTorch's operator of that name for oneDNN; nullopt where PyTorch came without.
template <typename Signature>
std::optional<c10::TypedOperatorHandle<Signature>> find_onednn(const char* name) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, ""});
  return op && at::Context::hasMKLDNN() ? std::make_optional(op->template typed<Signature>()) : std::nullopt;
}

}  // namespace thunder::executors::cpu
