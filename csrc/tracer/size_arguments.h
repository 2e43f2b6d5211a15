#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <span>

#include "tracer/size_node.h"
#include "tracer/window_sizes.h"

namespace thunder::tracer {

/// Notes the sizes that an operation is going to compute of its arguments and that are no sum, product or quotient of
/// known ones, and what it decides on them: the end of a slice, the bounds of an index, how many windows there are.
void note_size_arguments(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments, SizeUses& uses,
                         const FindSize& find_size);

}  // namespace thunder::tracer
