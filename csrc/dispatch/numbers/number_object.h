#pragma once

#include <Python.h>

#include <memory>
#include <optional>
#include <string_view>

#include "dispatch/numbers/number_origin.h"
#include "dispatch/numbers/number_trace.h"
#include "dispatch/python/errors.h"

namespace thunder::dispatch {

// Shared by the sources behind traced_number.h.

struct TracedNumber {
  PyObject_HEAD PyObject* real;
  std::shared_ptr<NumberTrace>* trace;
  tracer::Number number;
  bool looked_at;
  SizeOrigin* origin;          ///< null: it comes from data
  PyObject* size;              ///< the number as `as_size` gave it; null: nobody asked
  DataExpression* expression;  ///< null: there is none but for the number itself
};

extern PyTypeObject traced_float_type;
extern PyTypeObject traced_int_type;

inline TracedNumber& as_traced(PyObject* object) { return *reinterpret_cast<TracedNumber*>(object); }

/// Runs `record(recorder)` as part of no program, if the trace still goes on and the number is not tied to it yet.
/// False with a Python exception set.
template <typename Record>
bool with_recorder(const TracedNumber& traced, Record&& record) {
  tracer::Recorder* recorder = (*traced.trace)->recorder;
  if (recorder == nullptr) return true;
  try {
    const std::shared_ptr<void> outside = recorder->host.leave_program();
    record(*recorder);
    return true;
  } catch (...) {
    set_python_error();
    return false;
  }
}

/// A traced number; `real` is what Python has. Null with an exception.
[[nodiscard]] PyObject* make_number(const std::shared_ptr<NumberTrace>& trace, const tracer::Number& number,
                                    py::Ref real, std::unique_ptr<SizeOrigin> origin = nullptr);
/// The object as an operand of recorded arithmetic: a traced number, or a float or int that a tensor can hold.
[[nodiscard]] std::optional<tracer::NumberOperand> operand_of(PyObject* object);
/// The one of two operands, one of them traced, that the trace is not tied to yet; the first one when it is tied to
/// both.
[[nodiscard]] const TracedNumber& untied_of(PyObject* left, PyObject* right);
/// `compute` on values of the trace; `real` is what Python gave. Null without an exception when it is not recorded.
PyObject* record_number(const char* symbol, PyObject* left, PyObject* right, py::Borrowed real);

/// Notes which expression `result`, a traced number, is of the ints from data that `left symbol right` was computed
/// from, so that it and they are sizes over the same symbols (`as_size`).
void note_expression(std::string_view symbol, PyObject* left, PyObject* right, PyObject* result);

}  // namespace thunder::dispatch
