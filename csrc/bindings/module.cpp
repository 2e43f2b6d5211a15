#include <pybind11/pybind11.h>

#include "dispatch/compiled_function.h"
#include "interpreter/interpret.h"
#include "tracer/recorder.h"

namespace {

/// An area that reports failure the way of the C API: -1 with a Python exception set.
void require(int status) {
  if (status != 0) throw pybind11::error_already_set();
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.attr("built_for_torch") = THUNDER_BUILT_FOR_TORCH;
  thunder::tracer::init_tracer();
  require(thunder::interpreter::init_interpreter(module.ptr()));
  require(thunder::dispatch::init_dispatch(module.ptr()));
}
