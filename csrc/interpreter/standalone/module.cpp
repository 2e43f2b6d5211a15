// `thunder._interpreter`: the interpreter alone, for a Python without torch.

#include "interpreter/interpreter_module.h"

namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "thunder._interpreter",
    "The bytecode interpreter, without torch.",
    -1,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__interpreter() {
  PyObject* module = PyModule_Create(&definition);
  if (module != nullptr && thunder::interpreter::init_interpreter(module) < 0) Py_CLEAR(module);
  return module;
}
