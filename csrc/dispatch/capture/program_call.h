#pragma once

#include <Python.h>

#include "dispatch/call/specialization.h"
#include "interpreter/provenance/tracker.h"
#include "interpreter/python/python_ref.h"
#include "ir/trace.h"

namespace thunder::dispatch {

/// The call of the program that is traced: with its arguments as the trace sees them.
class ProgramCall {
 public:
  ProgramCall(const Traced& traced, const interpreter::CallArguments& arguments, interpreter::Tracker& tracker)
      : callable_(traced.callable), module_(traced.module), arguments_(arguments), tracker_(tracker) {}

  /// Tells the tracker where the callable and its arguments come from. False with a Python exception set.
  [[nodiscard]] bool admit_arguments();
  /// Calls the callable; what stands for it in a trace is asked for its arguments only where Python code calls it. Null
  /// with a Python exception set.
  [[nodiscard]] py::Ref run();
  /// The line of its `def`, with the file's name kept by `context`; no location: it is not of Python.
  [[nodiscard]] ir::SourceLocation definition(ir::TraceContext& context) const;

 private:
  PyObject* callable_;
  PyObject* module_;  ///< see Traced
  const interpreter::CallArguments& arguments_;
  interpreter::Tracker& tracker_;
  py::Ref positional_;
  py::Ref keywords_;
};

}  // namespace thunder::dispatch
