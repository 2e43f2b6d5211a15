#include "dispatch/python/trace_passes.h"

#include <string>

#include "base/error.h"
#include "compile/pass_runner.h"
#include "compile/pipeline.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/trace_object.h"
#include "interpreter/python/python_ref.h"
#include "ir/verifier.h"

namespace thunder::dispatch {
namespace {

/// pass_names() -> those that rewrite one trace, in the order of the pipeline
PyObject* pass_names(PyObject*, PyObject*) {
  py::Ref list = py::Ref::steal(PyList_New(0));
  for (const passes::Pass& pass : compile::trace_passes()) {
    const py::Ref name = py::Ref::steal(PyUnicode_FromString(pass.name));
    if (!list || !name || PyList_Append(list.get(), name.get()) < 0) return nullptr;
  }
  return list.release();
}

/// run_pass(trace, name) -> the verified trace that the pass makes
PyObject* run_pass(PyObject*, PyObject* arguments) {
  PyObject* object;
  const char* name;
  if (PyArg_ParseTuple(arguments, "Os", &object, &name) == 0) return nullptr;
  try {
    const ir::Trace* trace = trace_in(object);
    if (trace == nullptr) throw UserError(ErrorKind::kType, "run_pass: expected a trace");
    for (const passes::Pass& pass : compile::trace_passes()) {
      if (std::string(name) != pass.name) continue;
      ir::Trace result = pass.run(*trace, &compile::find_operator);
      ir::verify(result, pass.name);
      return make_trace_object(std::move(result));
    }
    throw UserError(ErrorKind::kValue, std::string("run_pass: expected one of pass_names(), got ") + name);
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyMethodDef pass_functions[] = {
    {"pass_names", pass_names, METH_NOARGS, "pass_names() -> names of the passes that rewrite one trace"},
    {"run_pass", run_pass, METH_VARARGS, "run_pass(trace, name) -> trace"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int init_trace_passes(PyObject* module) { return PyModule_AddFunctions(module, pass_functions); }

}  // namespace thunder::dispatch
