#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <optional>
#include <span>

namespace thunder::bridge {

/// The place of the argument `input` of an operator; nullopt: it has none.
[[nodiscard]] std::optional<std::size_t> place_of_input(const c10::FunctionSchema& schema);

/// Copies those tensors of a call that do not lie in order of memory: contiguous, or channels last where the argument
/// at `input`, if there is one, is images that lie so on a CPU.
void lay_out_in_order(std::optional<std::size_t> input, std::span<c10::IValue> arguments);

}  // namespace thunder::bridge
