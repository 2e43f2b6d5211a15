#include "interpreter/python/slots.h"

#include <structmember.h>

namespace thunder::interpreter {

bool is_read_only(PyObject* descriptor) {
  if (Py_TYPE(descriptor) == &PyMemberDescr_Type) {
    return (reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member->flags & READONLY) != 0;
  }
  return Py_TYPE(descriptor) == &PyGetSetDescr_Type &&
         reinterpret_cast<PyGetSetDescrObject*>(descriptor)->d_getset->set == nullptr;
}

}  // namespace thunder::interpreter
