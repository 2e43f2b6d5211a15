#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <utility>

#include "runtime/program_builder.h"

namespace thunder::check {

/// The operator as programs call it.
inline c10::OperatorHandle find(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}
inline runtime::Operand slot(std::uint32_t number) { return {runtime::Slot{number}}; }
inline runtime::Operand constant(c10::IValue value) { return {std::move(value)}; }

}  // namespace thunder::check
