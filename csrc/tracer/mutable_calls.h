#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "tracer/recorder.h"

namespace thunder::tracer {

/// Records a call of an operator that writes: by its functional counterpart, whose results are then written.
void call_mutable(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level);

}  // namespace thunder::tracer
