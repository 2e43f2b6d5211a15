#include "dispatch/numbers/size_object.h"

#include <torch/csrc/utils/python_symnode.h>

#include "tracer/size_shadows.h"

namespace thunder::dispatch {

using tracer::SizeNode;
using tracer::SizeScope;

bool is_size_number(PyObject* object) { return size_class.type != nullptr && Py_TYPE(object) == size_class.type; }

c10::SymNode unwrapped_node(PyObject* object) {
  if (object == nullptr || !pybind11::isinstance<c10::SymNodeImpl>(object)) return {};
  return pybind11::handle(object).cast<c10::SymNode>();
}

SizeParts& parts_of_size(PyObject* number) {
  return *reinterpret_cast<SizeParts*>(reinterpret_cast<char*>(number) + size_class.node_offset);
}

PyObject* type_of_size(PyObject* number) { return is_size_number(number) ? parts_of_size(number).type : nullptr; }

PyObject* int_as(PyObject* type, PyObject* number) {
  if (type == nullptr) return number;
  const py::Ref plain = py::Ref::steal(number);
  return plain ? PyObject_CallOneArg(type, plain.get()) : nullptr;
}

PyObject* size_as(PyObject* type, PyObject* number) {
  const auto size = size_of(number);
  return size ? make_size(size->scope, size->dim, type) : int_as(type, Py_NewRef(number));
}

std::optional<Size> size_of(PyObject* object) {
  if (!is_size_number(object)) return std::nullopt;
  const c10::SymNode node = unwrapped_node(parts_of_size(object).node);
  const auto* size = dynamic_cast<const SizeNode*>(node.get());
  if (size == nullptr) return std::nullopt;
  return Size{size->scope(), size->dim()};
}

std::optional<ir::Dim> dim_of_size_number(PyObject* object) {
  const auto size = size_of(object);
  return size ? std::optional(size->dim) : std::nullopt;
}

PyObject* make_size(const std::shared_ptr<SizeScope>& scope, const ir::Dim& dim, PyObject* type) {
  if (dim.is_concrete()) return int_as(type, PyLong_FromLongLong(dim.hint));
  if (scope->shadows != nullptr) scope->shadows->note_expression(dim);
  PyObject* object = size_class.type->tp_alloc(size_class.type, 0);
  if (object == nullptr) return nullptr;
  parts_of_size(object).node = pybind11::cast(c10::SymNode(c10::make_intrusive<SizeNode>(scope, dim))).release().ptr();
  parts_of_size(object).type = Py_XNewRef(type);
  return object;
}

PyObject* make_size_number(const c10::SymInt& size) {
  return or_python_error([&]() -> PyObject* {
    const tracer::SizeNode* node = tracer::size_node_of(size);
    return node == nullptr ? PyLong_FromLongLong(size.expect_int()) : make_size(node->scope(), node->dim());
  });
}

PyObject* look_at_size(PyObject* number) {
  return or_python_error([&]() -> PyObject* {
    const c10::SymNode node = unwrapped_node(parts_of_size(number).node);
    const auto* size = dynamic_cast<const SizeNode*>(node.get());
    if (size == nullptr) return PyErr_Format(PyExc_SystemError, "thunder.jit: a size that stands for nothing");
    return int_as(type_of_size(number), PyLong_FromLongLong(size->look_at()));
  });
}

}  // namespace thunder::dispatch
