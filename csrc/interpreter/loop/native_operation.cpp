#include "interpreter/loop/native_operation.h"

#include "interpreter/loop/iteration.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/python/imports.h"
#include "interpreter/python/python_ref.h"

#if PY_VERSION_HEX >= 0x030c0000
extern "C" {
#include <internal/pycore_intrinsics.h>
}
#endif

namespace thunder::interpreter {

PyObject* empty_function = nullptr;
vectorcallfunc plain_function_vectorcall = nullptr;

namespace {

/// Globals of a function of ours.
py::Ref make_globals() {
  py::Ref globals = py::Ref::steal(PyDict_New());
  if (globals && PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins()) < 0) return {};
  return globals;
}

#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030d0000

/// A function of two arguments that CPython's own loop executes as one instruction on both of them, or on the first:
/// for operations that libpython does not export.
PyObject* make_operation(std::uint8_t opcode, std::uint8_t argument, bool binary) {
  const std::uint8_t one[] = {RESUME, 0, LOAD_FAST, 0, opcode, argument, RETURN_VALUE, 0};
  const std::uint8_t two[] = {RESUME, 0, LOAD_FAST, 0, LOAD_FAST, 1, opcode, argument, RETURN_VALUE, 0};
  const py::Ref globals = make_globals();
  const py::Ref source = py::Ref::steal(
      globals ? Py_CompileString("lambda a, b: (a, b)", "<thunder.interpreter>", Py_eval_input) : nullptr);
  const py::Ref function =
      py::Ref::steal(source ? PyEval_EvalCode(source.get(), globals.get(), globals.get()) : nullptr);
  const py::Ref code = py::Ref::steal(function ? PyObject_GetAttrString(function.get(), "__code__") : nullptr);
  const py::Ref replace = py::Ref::steal(code ? PyObject_GetAttrString(code.get(), "replace") : nullptr);
  const py::Ref bytes =
      py::Ref::steal(binary ? PyBytes_FromStringAndSize(reinterpret_cast<const char*>(two), sizeof(two))
                            : PyBytes_FromStringAndSize(reinterpret_cast<const char*>(one), sizeof(one)));
  const py::Ref keywords = py::Ref::steal(bytes ? Py_BuildValue("{sO}", "co_code", bytes.get()) : nullptr);
  const py::Ref none = py::Ref::steal(PyTuple_New(0));
  if (!replace || !keywords || !none) return nullptr;
  const py::Ref new_code = py::Ref::steal(PyObject_Call(replace.get(), none.get(), keywords.get()));
  return new_code ? PyFunction_New(new_code.get(), globals.get()) : nullptr;
}

PyObject* run_operation(PyObject* operation, PyObject* first, PyObject* second) {
  const NativeScope native;
  return PyObject_CallFunctionObjArgs(operation, first, second, nullptr);
}

#endif

#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000
PyObject* reraise_star_operation = nullptr;

int prepare_operations() {
  reraise_star_operation = make_operation(PREP_RERAISE_STAR, 0, true);
  return reraise_star_operation != nullptr ? 0 : -1;
}

#elif PY_VERSION_HEX >= 0x030c0000 && PY_VERSION_HEX < 0x030d0000
PyObject* unary_operations[MAX_INTRINSIC_1 + 1];
PyObject* binary_operations[MAX_INTRINSIC_2 + 1];

int prepare_operations() {
  for (int i = 1; i <= MAX_INTRINSIC_1; ++i) {
    unary_operations[i] = make_operation(CALL_INTRINSIC_1, static_cast<std::uint8_t>(i), false);
    if (unary_operations[i] == nullptr) return -1;
  }
  for (int i = 1; i <= MAX_INTRINSIC_2; ++i) {
    binary_operations[i] = make_operation(CALL_INTRINSIC_2, static_cast<std::uint8_t>(i), true);
    if (binary_operations[i] == nullptr) return -1;
  }
  return 0;
}

/// The exception that a generator raises instead of a StopIteration that left its body.
PyObject* stop_iteration_error(PyObject* exception, int code_flags) {
  const char* message = nullptr;
  if (PyErr_GivenExceptionMatches(exception, PyExc_StopIteration)) {
    message = (code_flags & CO_ASYNC_GENERATOR) != 0 ? "async generator raised StopIteration"
              : (code_flags & CO_COROUTINE) != 0     ? "coroutine raised StopIteration"
                                                     : "generator raised StopIteration";
  } else if ((code_flags & CO_ASYNC_GENERATOR) != 0 &&
             PyErr_GivenExceptionMatches(exception, PyExc_StopAsyncIteration)) {
    message = "async generator raised StopAsyncIteration";
  }
  if (message == nullptr) return Py_NewRef(exception);
  PyObject* error = PyObject_CallFunction(PyExc_RuntimeError, "s", message);
  if (error == nullptr) return nullptr;
  PyException_SetCause(error, Py_NewRef(exception));
  PyException_SetContext(error, Py_NewRef(exception));
  return error;
}

#else
int prepare_operations() { return 0; }
#endif

}  // namespace

int prepare_native_operations() {
  if (empty_function != nullptr) return 0;
  const py::Ref globals = make_globals();
  const py::Ref code =
      py::Ref::steal(globals ? Py_CompileString("lambda: None", "<thunder.interpreter>", Py_eval_input) : nullptr);
  if (!code || prepare_operations() < 0) return -1;
  empty_function = PyEval_EvalCode(code.get(), globals.get(), globals.get());
  if (empty_function == nullptr) return -1;
  plain_function_vectorcall = reinterpret_cast<PyFunctionObject*>(empty_function)->vectorcall;
  return 0;
}

#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000

PyObject* prepare_reraise_star(PyObject* original, PyObject* exceptions) {
  return run_operation(reraise_star_operation, original, exceptions);
}

#elif PY_VERSION_HEX >= 0x030c0000 && PY_VERSION_HEX < 0x030d0000

PyObject* prepare_reraise_star(PyObject* original, PyObject* exceptions) {
  return PyUnstable_Exc_PrepReraiseStar(original, exceptions);
}

PyObject* call_intrinsic(PyThreadState* /*tstate*/, int which, PyObject* value, int code_flags, PyObject* locals) {
  switch (which) {
    case INTRINSIC_STOPITERATION_ERROR:
      return stop_iteration_error(value, code_flags);
    case INTRINSIC_IMPORT_STAR:
      return import_star(value, locals) == 0 ? Py_NewRef(Py_None) : nullptr;
    case INTRINSIC_ASYNC_GEN_WRAP:
      return wrap_async_value(value);
    case INTRINSIC_UNARY_POSITIVE:
      return PyNumber_Positive(value);
    case INTRINSIC_LIST_TO_TUPLE:
      return PyList_AsTuple(value);
    default:
      return run_operation(unary_operations[which], value, Py_None);
  }
}

PyObject* call_intrinsic_2(PyThreadState* /*tstate*/, int which, PyObject* first, PyObject* second) {
  if (which == INTRINSIC_PREP_RERAISE_STAR) return prepare_reraise_star(first, second);
  return run_operation(binary_operations[which], first, second);
}

#elif PY_VERSION_HEX >= 0x030d0000

PyObject* prepare_reraise_star(PyObject* original, PyObject* exceptions) {
  return PyUnstable_Exc_PrepReraiseStar(original, exceptions);
}

PyObject* call_intrinsic(PyThreadState* tstate, int which, PyObject* value, int /*code_flags*/, PyObject* /*locals*/) {
  return _PyIntrinsics_UnaryFunctions[which].func(tstate, value);
}

PyObject* call_intrinsic_2(PyThreadState* tstate, int which, PyObject* first, PyObject* second) {
  return _PyIntrinsics_BinaryFunctions[which].func(tstate, first, second);
}

#endif

}  // namespace thunder::interpreter
