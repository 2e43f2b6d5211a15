// Tensors that the program makes of sequences of numbers and tensors: `thunder._tensor_data` makes them.
#include <torch/csrc/Size.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "dispatch/call/thread_state.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/capture/tensor_facts.h"
#include "dispatch/numbers/number_arguments.h"
#include "dispatch/numbers/size_number.h"
#include "dispatch/python/python_tensor.h"

namespace thunder::dispatch {
namespace {

bool is_plain_sequence(PyObject* data) {
  return PyList_CheckExact(data) || PyTuple_CheckExact(data) || THPSize_Check(data);
}

/// Whether the data of nested sequences is not known while the program is traced.
bool has_computed(PyObject* data) {
  if (!is_plain_sequence(data)) {
    return is_traced_tensor(data) || is_traced_number(data) || is_size_number(data);
  }
  PyObject** elements = PySequence_Fast_ITEMS(data);
  return std::any_of(elements, elements + Py_SIZE(data), &has_computed);
}

bool is_function_of_data(PyObject* callable) {
  const std::string_view name = name_of(callable);
  return (name == "tensor" || name == "as_tensor" || name == "asarray") && module_of(callable).starts_with("torch");
}

}  // namespace

const char* dtype_of_legacy_type(PyObject* callable) {
  struct Row {
    std::string_view type;
    const char* dtype;
  };
  static constexpr std::array kRows{Row{"torch.FloatTensor", "float32"}, Row{"torch.DoubleTensor", "float64"},
                                    Row{"torch.HalfTensor", "float16"},  Row{"torch.LongTensor", "int64"},
                                    Row{"torch.IntTensor", "int32"},     Row{"torch.BoolTensor", "bool"}};
  if (!PyType_Check(callable)) return nullptr;
  const auto* row = std::ranges::find(kRows, reinterpret_cast<PyTypeObject*>(callable)->tp_name, &Row::type);
  return row == kRows.end() ? nullptr : row->dtype;
}

int call_on_sequences(PyObject* callable, const interpreter::NativeCall& call, PyObject** result) {
  if (call.count == 0) return 0;
  PyObject* data = call.arguments[0];
  if (!is_plain_sequence(data) || !has_computed(data)) return 0;
  const char* dtype = dtype_of_legacy_type(callable);
  if (dtype == nullptr && !is_function_of_data(callable)) return 0;
  // A function mode is told of the call first, and then calls it itself. Of a legacy type it is told what reads
  // numbers.
  if (has_function_mode()) return dtype == nullptr || refuse_fact("torch.FloatTensor, under a function mode,") ? 0 : -1;
  if (dtype != nullptr && total(call) != 1) return 0;
  const py::Ref maker = loaded_function("thunder._tensor_data", "tensor");
  if (!maker) return PyErr_Occurred() != nullptr ? -1 : 0;
  if (dtype == nullptr) {
    *result = PyObject_Vectorcall(maker.get(), call.arguments, call.count, call.names);
  } else {
    const py::Ref torch = py::Ref::steal(py::import_module("torch"));
    const py::Ref given = py::Ref::steal(torch ? PyObject_GetAttrString(torch.get(), dtype) : nullptr);
    *result = given ? PyObject_CallFunctionObjArgs(maker.get(), data, given.get(), nullptr) : nullptr;
  }
  return *result == nullptr ? -1 : 1;
}

}  // namespace thunder::dispatch
