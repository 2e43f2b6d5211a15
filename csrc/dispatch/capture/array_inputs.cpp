#include "dispatch/capture/array_inputs.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "dispatch/call/thread_state.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/numbers/number_arguments.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/loop/native_scope.h"
#include "tracer/array_memory.h"
#include "tracer/recording_scopes.h"

namespace thunder::dispatch {
namespace {

/// How a function of PyTorch makes its result of the tensor over the memory of an array.
struct Conversion {
  const char* dtype = nullptr;  ///< as an attribute of `torch`
  bool copies = true;
  bool takes_keywords = false;  ///< `dtype` and `device`
};

const char* name_of_default_dtype() {
  switch (c10::get_default_dtype_as_scalartype()) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    default:
      return nullptr;
  }
}

std::optional<Conversion> conversion_by(PyObject* callable) {
  if (PyType_Check(callable)) {
    static const py::Ref tensor_class = loaded_function("torch", "Tensor");
    const bool is_default = callable == tensor_class.get();
    const char* dtype = is_default ? name_of_default_dtype() : dtype_of_legacy_type(callable);
    return dtype == nullptr ? std::nullopt : std::optional(Conversion{.dtype = dtype, .copies = false});
  }
  if (!module_of(callable).starts_with("torch")) return std::nullopt;
  const std::string_view name = name_of(callable);
  if (name == "from_numpy") return Conversion{.copies = false};
  if (name == "as_tensor") return Conversion{.copies = false, .takes_keywords = true};
  if (name == "tensor") return Conversion{.takes_keywords = true};
  return std::nullopt;
}

bool is_array(PyObject* object) { return std::string_view(Py_TYPE(object)->tp_name) == "numpy.ndarray"; }

/// Numbers would be a size to a legacy type. Of an array that is only read PyTorch makes no tensor without a warning.
bool is_convertible(PyObject* array) {
  Py_buffer view;
  if (PyObject_GetBuffer(array, &view, PyBUF_STRIDES | PyBUF_WRITABLE) < 0) return PyErr_Clear(), false;
  const bool has_dimensions = view.ndim > 0;
  PyBuffer_Release(&view);
  return has_dimensions;
}

bool has_known_keywords(const interpreter::NativeCall& call, const Conversion& conversion) {
  const Py_ssize_t count = call.names == nullptr ? 0 : PyTuple_GET_SIZE(static_cast<PyObject*>(call.names));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* name = PyTuple_GET_ITEM(static_cast<PyObject*>(call.names), i);
    const bool is_known =
        PyUnicode_CompareWithASCIIString(name, "dtype") == 0 || PyUnicode_CompareWithASCIIString(name, "device") == 0;
    if (!is_known || !conversion.takes_keywords) return false;
  }
  return true;
}

bool has_arrays(PyObject* index) {
  if (!PyTuple_CheckExact(index)) return is_array(index);
  PyObject* const* items = PySequence_Fast_ITEMS(index);
  return std::any_of(items, items + PyTuple_GET_SIZE(index), is_array);
}

/// `tensor.to(dtype=…, device=…, copy=…)`, with those that the call has.
PyObject* converted(PyObject* tensor, const interpreter::NativeCall& call, const Conversion& conversion) {
  const py::Ref keywords = py::Ref::steal(PyDict_New());
  if (!keywords) return nullptr;
  const Py_ssize_t count = call.names == nullptr ? 0 : PyTuple_GET_SIZE(static_cast<PyObject*>(call.names));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* value = call.arguments[call.count + static_cast<std::size_t>(i)];
    PyObject* name = PyTuple_GET_ITEM(static_cast<PyObject*>(call.names), i);
    if (value != Py_None && PyDict_SetItem(keywords.get(), name, value) < 0) return nullptr;
  }
  if (conversion.dtype != nullptr) {
    const py::Ref torch = py::Ref::steal(py::import_module("torch"));
    const py::Ref dtype = py::Ref::steal(torch ? PyObject_GetAttrString(torch.get(), conversion.dtype) : nullptr);
    if (!dtype || PyDict_SetItemString(keywords.get(), "dtype", dtype.get()) < 0) return nullptr;
  }
  if (PyDict_GET_SIZE(keywords.get()) == 0) {
    return conversion.copies ? PyObject_CallMethod(tensor, "clone", nullptr) : Py_NewRef(tensor);
  }
  if (conversion.copies && PyDict_SetItemString(keywords.get(), "copy", Py_True) < 0) return nullptr;
  const py::Ref method = py::Ref::steal(PyObject_GetAttrString(tensor, "to"));
  const py::Ref none = py::Ref::steal(PyTuple_New(0));
  return method && none ? PyObject_Call(method.get(), none.get(), keywords.get()) : nullptr;
}

}  // namespace

PyObject* ArrayInputs::lift(interpreter::Tracker& tracker, interpreter::Node& array) {
  const py::Ref function = loaded_function("torch", "from_numpy");
  if (!function) return nullptr;
  constexpr auto kStep = interpreter::Accessor::kConversion;
  if (const interpreter::Read* known = tracker.provenance().find_read(array, kStep, function.get(), 0)) {
    // Each call makes a tensor of its own.
    const py::Ref first = py::Ref::steal(tracker.tensors().present(Py_NewRef(known->value.get())));
    return first ? PyObject_GetAttrString(first.get(), "data") : nullptr;
  }
  py::Ref real;
  {
    const interpreter::NativeScope native;
    const tracer::SuspendRecording suspended;
    real = py::Ref::steal(PyObject_CallOneArg(function.get(), array.object.get()));
  }
  if (!real) return PyErr_Clear(), nullptr;
  tracker.reads().record(array, kStep, function.get(), 0, real.get(), interpreter::Audience::kProgram);
  py::Ref traced = py::Ref::steal(tracker.tensors().present(Py_NewRef(real.get())));
  if (traced) recorder_.arrays.add(unpack_tensor(real.get()), unpack_tensor(traced.get()));
  return traced.release();
}

int ArrayInputs::convert(interpreter::Tracker& tracker, PyObject* callable, const interpreter::NativeCall& call,
                         PyObject** result) {
  if (call.count != 1 || !is_array(call.arguments[0])) return 0;
  interpreter::Node* node = tracker.provenance().find(call.arguments[0]);
  const std::optional<Conversion> conversion = node == nullptr ? std::nullopt : conversion_by(callable);
  // A mode is told of the call, and may give the tensor another device.
  const bool is_plain = conversion && !has_function_mode() && has_known_keywords(call, *conversion);
  if (!is_plain || !is_convertible(call.arguments[0])) return 0;
  // A default device is that of all but `from_numpy`.
  if (conversion->takes_keywords && !ThreadState::now().default_devices.empty()) return 0;
  const py::Ref traced = py::Ref::steal(lift(tracker, *node));
  if (!traced) return PyErr_Occurred() != nullptr ? -1 : 0;
  *result = converted(traced.get(), call, *conversion);
  return *result == nullptr ? -1 : 1;
}

PyObject* ArrayInputs::index_of(interpreter::Tracker& tracker, PyObject* array, bool is_in_tuple) {
  interpreter::Node* node = is_array(array) ? tracker.provenance().find(array) : nullptr;
  if (node == nullptr || !is_convertible(array)) return nullptr;
  py::Ref traced = py::Ref::steal(lift(tracker, *node));
  if (!traced) return nullptr;
  const at::Tensor& tensor = unpack_tensor(traced.get());
  // PyTorch takes an array of several dimensions for a tuple of its rows, where there are few.
  const bool is_whole = is_in_tuple || tensor.dim() == 1;
  if (!is_whole || tensor.scalar_type() == at::kByte) return nullptr;
  if (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kLong) return traced.release();
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false)
             ? PyObject_CallMethod(traced.get(), "long", nullptr)
             : nullptr;
}

PyObject* ArrayInputs::convert_index(interpreter::Tracker& tracker, PyObject* tensor, PyObject* index) {
  if (!has_arrays(index) || is_told_of_operations(tensor)) return nullptr;
  if (is_array(index)) return index_of(tracker, index, /*is_in_tuple=*/false);
  py::Ref items = py::Ref::steal(PyTuple_New(PyTuple_GET_SIZE(index)));
  for (Py_ssize_t i = 0; items && i < PyTuple_GET_SIZE(index); ++i) {
    PyObject* item = PyTuple_GET_ITEM(index, i);
    PyObject* converted = index_of(tracker, item, /*is_in_tuple=*/true);
    if (converted == nullptr && PyErr_Occurred() != nullptr) return nullptr;
    PyTuple_SET_ITEM(items.get(), i, converted == nullptr ? Py_NewRef(item) : converted);
  }
  return items.release();
}

}  // namespace thunder::dispatch
