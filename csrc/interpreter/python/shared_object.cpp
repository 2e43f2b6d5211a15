#include "interpreter/python/shared_object.h"

namespace thunder::interpreter {
namespace {

struct ReleaseUnderGil {
  void operator()(void* object) const {
    if (Py_IsInitialized() == 0) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(static_cast<PyObject*>(object));
    PyGILState_Release(state);
  }
};

}  // namespace

std::shared_ptr<void> share_object(py::Borrowed object) { return {Py_NewRef(object), ReleaseUnderGil{}}; }

}  // namespace thunder::interpreter
