#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include "base/background.h"
#include "base/error.h"
#include "bindings/python_values.h"
#include "bindings/trace_file.h"
#include "compile/foreign_error.h"
#include "dispatch/compiled_function.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/gil.h"
#include "interpreter/interpreter_module.h"
#include "runtime/user_warning.h"
#include "tracer/fallback.h"

namespace {

/// An area that reports failure the way of the C API: -1 with a Python exception set.
void require(int status) {
  if (status != 0) throw pybind11::error_already_set();
}

/// Name -> (names of the parameters, number of results): for the test that compares them with thunder/prims.py.
pybind11::dict primitive_rows() {
  pybind11::dict rows;
  for (const thunder::ir::Operator* op : thunder::bindings::primitive_operators()) {
    pybind11::list parameters;
    for (const auto& parameter : op->parameters) parameters.append(parameter.name);
    rows[op->name.c_str()] = pybind11::make_tuple(parameters, op->results.size());
  }
  return rows;
}

/// Exceptions of ours, in functions that pybind11 wraps.
void translate(std::exception_ptr error) {
  try {
    std::rethrow_exception(std::move(error));
  } catch (const thunder::UserError&) {
    thunder::dispatch::set_python_error();
  } catch (const thunder::InternalError&) {
    thunder::dispatch::set_python_error();
  } catch (const c10::Error&) {
    thunder::dispatch::set_python_error();
  } catch (const thunder::dispatch::PendingError&) {
    // It is set already.
  }
}

void rethrow_python_error() {
  try {
    throw;
  } catch (const python_error&) {
    throw;
  } catch (const thunder::dispatch::PendingError&) {
    // As PyTorch's own, so that its engine carries it from a backward to the caller.
    const thunder::dispatch::GilHold gil;
    python_error carried;
    carried.persist();
    throw carried;
  } catch (...) {
    // One of ours.
  }
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  // Before the libraries that compile are closed.
  static_cast<void>(Py_AtExit(&thunder::end_background_work));
  thunder::compile::set_rethrow_foreign(&rethrow_python_error);
  thunder::runtime::set_warn_user(&thunder::dispatch::warn_in_python);
  module.attr("built_for_torch") = THUNDER_BUILT_FOR_TORCH;
  thunder::tracer::init_tracer();
  require(thunder::interpreter::init_interpreter(module.ptr()));
  require(thunder::dispatch::init_dispatch(module.ptr()));
  pybind11::register_local_exception_translator(&translate);
  thunder::bindings::init_trace(module);
  thunder::bindings::init_extend(module);
  module.def("_primitive_rows", &primitive_rows);
}
