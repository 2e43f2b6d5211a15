#pragma once

#include <Python.h>

#include "tracer/recorder.h"

namespace thunder::dispatch {

/// The trace that numbers belong to; null once it has ended.
struct NumberTrace {
  tracer::Recorder* recorder = nullptr;
  bool are_plain = false;    ///< the program gets numbers of Python, to which the trace is tied
  bool are_refused = false;  ///< code in C took none that stands for another: the next trace has plain ones
};

/// Whether an object stands for a number of a trace (traced_number.h).
[[nodiscard]] bool is_traced_number(PyObject* object);

}  // namespace thunder::dispatch
