#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <span>

namespace thunder::bridge {

/// Copies those tensors of a call that do not lie in order of memory: contiguous, or channels last where the argument
/// `input` is images that lie so on a CPU.
void lay_out_in_order(const c10::FunctionSchema& schema, std::span<c10::IValue> arguments);

}  // namespace thunder::bridge
