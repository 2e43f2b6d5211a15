#include "dispatch/call/overrides.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>

#include <algorithm>
#include <utility>

#include "bridge/convert.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/provenance/provenance_constant.h"

namespace thunder::dispatch {
namespace {

std::vector<py::Ref> items_of(PyObject* sequence) {
  const py::Ref fast = checked(PySequence_Fast(sequence, "expected a list"));
  std::vector<py::Ref> items;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    items.push_back(py::Ref::share(PySequence_Fast_GET_ITEM(fast.get(), i)));
  }
  return items;
}

ir::Dims dims_of(PyObject* sequence) {
  ir::Dims dims;
  for (const py::Ref& item : items_of(sequence)) dims.emplace_back(PyLong_AsLongLong(item.get()));
  return dims;
}

Overrides::Added read_added(PyObject* described) {
  const char *name, *owner;
  PyObject *place, *tensor;
  if (PyArg_ParseTuple(described, "ssOO", &name, &owner, &place, &tensor) == 0) throw PendingError();
  return {name, owner, py::Ref::share(place), py::Ref::share(tensor)};
}

Overrides::Entry read_entry(PyObject* described) {
  const char *name, *owner;
  PyObject *tensors, *shape, *stride, *dtype, *device, *added;
  if (PyArg_ParseTuple(described, "ssOOOOOO", &name, &owner, &tensors, &shape, &stride, &dtype, &device, &added) == 0) {
    throw PendingError();
  }
  Overrides::Entry entry{name, owner, items_of(tensors), {}, {}, false};
  for (const py::Ref& each : items_of(added)) entry.added.push_back(read_added(each.get()));
  if (!THPDtype_Check(dtype)) return entry;
  entry.seen.sizes = dims_of(shape);
  entry.seen.strides = dims_of(stride);
  entry.seen.dtype = bridge::from_torch(reinterpret_cast<THPDtype*>(dtype)->scalar_type);
  if (THPDevice_Check(device)) {
    entry.seen.device = bridge::from_torch(reinterpret_cast<THPDevice*>(device)->device);
    entry.has_device = true;
  }
  return entry;
}

}  // namespace

Overrides::Overrides(PyObject* module) {
  if (!has_overrides(module)) return;
  const interpreter::NativeScope native;
  const py::Ref described = checked(PyObject_CallOneArg(overrides_function("describe").get(), module));
  for (const py::Ref& each : items_of(described.get())) entries_.push_back(read_entry(each.get()));
}

const Overrides::Entry* Overrides::find(const PyObject* tensor) const {
  const auto is_it = [&](const py::Ref& own) { return own.get() == tensor; };
  const auto found =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return std::ranges::any_of(entry.tensors, is_it); });
  return found == entries_.end() ? nullptr : &*found;
}

ir::TypePtr Overrides::seen_type(const Entry& entry, const at::Tensor& real) {
  ir::TensorType type = bridge::type_of(real);
  if (!entry.owner.empty()) {
    type.sizes = entry.seen.sizes;
    type.strides = entry.seen.strides;
    type.dtype = entry.seen.dtype;
    if (entry.has_device) type.device = entry.seen.device;
    type.storage_offset = 0;
  }
  const auto requires_grad = [](const Added& each) { return unpack_tensor(each.tensor.get()).requires_grad(); };
  type.requires_grad = type.requires_grad || std::ranges::any_of(entry.added, requires_grad);
  return ir::make_type(std::move(type));
}

PyObject* overrides_registry(PyObject* module) {
  static PyObject* const name = PyUnicode_InternFromString("_thunder_overrides");
  const py::SavedError pending;
  const py::Ref attributes = interpreter::instance_dict(module);
  PyObject* registry = attributes ? PyDict_GetItemWithError(attributes.get(), name) : nullptr;
  return registry != nullptr && PyDict_Check(registry) && PyDict_Size(registry) > 0 ? registry : nullptr;
}

bool has_overrides(PyObject* module) { return overrides_registry(module) != nullptr; }

std::string describe_overrides(PyObject* module) {
  const interpreter::NativeScope native;
  const py::Ref text = checked(PyObject_CallOneArg(overrides_function("summary").get(), module));
  const char* content = PyUnicode_AsUTF8(text.get());
  if (content == nullptr) throw PendingError();
  return content;
}

py::Ref overrides_function(const char* name) {
  const interpreter::NativeScope native;
  const py::Ref module = checked(py::import_module("thunder.transforms.overrides"));
  return checked(PyObject_GetAttrString(module.get(), name));
}

}  // namespace thunder::dispatch
