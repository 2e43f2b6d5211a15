#pragma once

#include <Python.h>

#include <memory>

#include "compile/trace_transform.h"
#include "dispatch/python/gil.h"
#include "interpreter/loop/native_scope.h"
#include "tracer/recording_scopes.h"

namespace thunder::dispatch {

/// While alive, Python may be called that is not part of any program: nothing of it is interpreted or recorded.
class HookScope {
 private:
  GilHold gil_;
  interpreter::NativeScope native_;
  tracer::SuspendRecording suspended_;
};

/// Makes a transform of the hooks of a `thunder.transforms.Transform`: `(name, pre_prologue, post_optimization,
/// check_collectives, note_failure)`, a str and functions (or None), of which the first two take and give traces of
/// `thunder._C`. Null with a Python exception set.
[[nodiscard]] std::shared_ptr<const compile::TraceTransform> make_transform(PyObject* hooks);

}  // namespace thunder::dispatch
