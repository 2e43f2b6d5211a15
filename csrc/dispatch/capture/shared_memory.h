#pragma once

#include "dispatch/capture/torch_hooks.h"
#include "interpreter/provenance/tracker.h"
#include "tracer/recorder.h"

namespace thunder::dispatch {

/// Refuses what a trace cannot say of memory that arrays of NumPy and tensors share: writes to it, and results that
/// show an array from outside. Throws UserError.
void require_no_shared_effects(const tracer::Recorder& recorder, interpreter::Tracker& tracker);
/// Whether the program reads the memory of objects from outside that are no tensors.
[[nodiscard]] bool reads_buffers(const interpreter::Tracker& tracker);
/// Refuses attributes that the program gave to tensors from outside by way of their `__dict__`. Throws UserError.
void require_same_attributes(const TorchHooks& hooks);

}  // namespace thunder::dispatch
