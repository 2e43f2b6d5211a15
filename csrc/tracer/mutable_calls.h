#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <span>

#include "tracer/recorder.h"

namespace thunder::tracer {

/// Records a call of an operator that writes: by its functional counterpart, whose results are then written.
void call_mutable(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level);

/// Raises what eager raises with gradients on for a call that writes in place, before it writes to any target.
void require_writable_targets(const Recorder& recorder, const c10::OperatorHandle& op,
                              std::span<const c10::IValue> arguments);

}  // namespace thunder::tracer
