#pragma once

#include "tracer/recorder.h"

namespace thunder::dispatch {

/// The trace that numbers belong to; null once it has ended.
struct NumberTrace {
  tracer::Recorder* recorder = nullptr;
};

}  // namespace thunder::dispatch
