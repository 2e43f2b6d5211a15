#pragma once

#include "interpreter/python/cpython_compat.h"

namespace thunder::interpreter {

/// `__import__` of the frame's builtins, called as the import statement does.
PyObject* import_name(PyObject* builtins, PyObject* globals, PyObject* locals, PyObject* name, PyObject* from_list,
                      PyObject* level);
PyObject* import_from(PyObject* module, PyObject* name);
/// `from module import *` into `locals`; 0 or -1.
int import_star(PyObject* module, PyObject* locals);

}  // namespace thunder::interpreter
