#pragma once

#include <Python.h>

#include <memory>
#include <vector>

#include "interpreter/python/python_ref.h"
#include "ir/trace.h"

namespace thunder::dispatch {

/// The Python object that the printed program calls `object<i>`; None where Python has nothing for it: only transforms
/// look at it. Null with an exception set.
py::Ref to_python(const ir::TraceContext::Object& object);

/// A Python object for a trace: `str()` is the printed program, `name`, and `context()`, the dict that binds the
/// constants `object<i>` of the program. New reference, or null with an exception set.
PyObject* make_trace_object(ir::Trace trace);
PyObject* make_trace_list(std::vector<ir::Trace> traces);

/// The trace in such an object; null for every other object.
const ir::Trace* trace_in(PyObject* object);
std::shared_ptr<const ir::Trace> share_trace(PyObject* object);

/// Adds the type to `module`; 0 or -1 with an exception.
int init_trace_object(PyObject* module);

}  // namespace thunder::dispatch
