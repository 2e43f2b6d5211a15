#include "interpreter/python/cpython_compat.h"

#include "interpreter/provenance/trace_tensors.h"

#include <algorithm>

#include "interpreter/loop/interpreted_getter.h"
#include "interpreter/loop/observe.h"
#include "interpreter/provenance/containers.h"
#include "interpreter/provenance/opaque_state.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/deque.h"
#include "interpreter/python/dict_view.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

/// A view or read-only proxy like `view`, of another dict.
py::Ref view_like(py::Borrowed view, const py::Ref& dict) {
  if (!dict) return nullptr;
  if (Py_TYPE(view) == &PyDictProxy_Type) return py::Ref::steal(PyDictProxy_New(dict.get()));
  const char* method = PyObject_TypeCheck(view, &PyDictValues_Type)  ? "values"
                       : PyObject_TypeCheck(view, &PyDictItems_Type) ? "items"
                                                                     : "keys";
  return py::Ref::steal(PyObject_CallMethod(dict.get(), method, nullptr));
}

}  // namespace

bool TraceTensors::is_frame_of_caller(py::Borrowed value) const {
  py::Ref frame = caller_;
  while (frame && frame.get() != value) {
    frame = py::Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(frame.get()))));
  }
  return static_cast<bool>(frame);
}

PyObject* TraceTensors::present(PyObject* value) {
  if (Py_TYPE(value) == &PyFrame_Type && is_frame_of_caller(value)) {
    Py_DECREF(value);
    PyErr_SetString(PyExc_NotImplementedError,
                    "thunder.jit: the frame that calls the function is looked at, which is another one at each call");
    return nullptr;
  }
  if (!is_real_tensor(value, state_.hooks)) return state_.hooks.present_sizes(value);
  const py::Ref real = py::Ref::steal(value);
  Node& node = state_.provenance.constant(value, "<constant tensor>");
  if (!node.trace_tensor) node.trace_tensor = py::Ref::steal(state_.hooks.lift(node.object.get(), expression(node)));
  return Py_XNewRef(node.trace_tensor.get());
}

PyObject* TraceTensors::present(PyObject* value, const Read* read) {
  const py::Ref none;
  const py::Ref& seen = read == nullptr ? none : read->part != nullptr ? read->part->seen : read->seen;
  if (!seen) return present(value);
  Py_DECREF(value);
  return Py_NewRef(seen.get());
}

bool TraceTensors::looks_into_operands(py::Borrowed object) const {
  if (PyUnicode_Check(object) || PyBytes_Check(object)) return true;  // `%`
  if (is_scalar(object) || is_container(object)) return false;
  return state_.hooks.is_traced(object) || PyObject_CheckBuffer(object) != 0 || !is_python_class(Py_TYPE(object));
}

/// Whether the operators of an object that looks into operands know numbers alone, and not what stands for them.
bool TraceTensors::takes_plain_numbers(py::Borrowed object) const {
  const TensorHooks& hooks = state_.hooks;
  return !hooks.is_traced(object) && !hooks.is_size(object) && !hooks.is_real_tensor(object);
}

PyObject* TraceTensors::operand(PyObject* value, PyObject* other, bool is_key) {
  if (!state_.hooks.look_into(other)) return nullptr;
  if (is_key && (PyDict_Check(other) || PyAnySet_Check(other)) && state_.provenance.find(other) != nullptr) {
    // Keys of containers from outside are the tensors themselves, not their trace tensors.
    PyObject* real = state_.hooks.is_traced(value) ? state_.hooks.original(value) : nullptr;
    if (real != nullptr) return real;
  }
  const bool is_index = is_key && state_.hooks.is_traced(other) && state_.options.convert_index;
  const py::Ref converted = py::Ref::steal(is_index ? state_.options.convert_index(other, value) : nullptr);
  if (!converted && PyErr_Occurred() != nullptr) return nullptr;
  if (converted) value = converted.get();
  const bool is_looked_at = looks_into_operands(other);
  const py::Ref seen = py::Ref::steal(is_looked_at ? given(value) : Py_NewRef(value));
  if (!seen) return nullptr;
  if (is_looked_at && !is_key && takes_plain_numbers(other)) return state_.hooks.plain_number(seen.get());
  const auto is_computed = [&](PyObject* item) { return state_.hooks.is_number(item) || state_.hooks.is_traced(item); };
  const bool is_sum_of_tuples = !is_key && PyTuple_Check(other) && PyTuple_CheckExact(value);
  PyObject* const* items = is_sum_of_tuples ? PySequence_Fast_ITEMS(value) : nullptr;
  const bool concerns_numbers =
      state_.hooks.is_number(value) ||
      (is_sum_of_tuples && std::any_of(items, items + PyTuple_GET_SIZE(value), is_computed)) ||
      (is_key ? state_.hooks.is_traced(other) : state_.hooks.is_size(value) && PyObject_CheckBuffer(other) != 0);
  return concerns_numbers ? state_.hooks.operand(seen.get(), other, is_key) : Py_NewRef(seen.get());
}

PyObject* TraceTensors::given(PyObject* value) {
  const bool has_real_tensors = reads_.read_deeply(value);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return has_real_tensors ? substitute(value).release() : Py_NewRef(value);
}

py::Ref TraceTensors::substitute(py::Borrowed value, int depth) {
  if (is_real_tensor(value, state_.hooks)) return py::Ref::steal(present(Py_NewRef(value)));
  const bool is_iterator = iterates_over_objects(value);
  const bool is_replaced =
      is_iterator || is_container(value) || PySlice_Check(value) || mapping_behind(value) != nullptr;
  if (!is_replaced || !reads_.read_deeply(value, Reads::Told::kContents, depth)) return py::Ref::share(value);
  if (is_iterator) return interpreted_iterator(value);
  if (PyObject* mapping = mapping_behind(value)) return view_like(value, substitute(mapping, depth + 1));
  if (PyDict_Check(value)) {
    py::Ref copy = py::Ref::steal(PyDict_Copy(value));
    PyObject *key, *item;
    Py_ssize_t position = 0;
    while (copy && PyDict_Next(value, &position, &key, &item)) {
      const py::Ref replaced = substitute(item, depth + 1);
      if (!replaced || PyDict_SetItem(copy.get(), key, replaced.get()) < 0) return nullptr;
    }
    return copy;
  }
  py::Ref items = py::Ref::steal(PyList_New(0));
  bool failed = !items;
  for_each_item(value, [&](PyObject* item) {
    const py::Ref replaced = failed ? py::Ref() : substitute(item, depth + 1);
    failed = failed || !replaced || PyList_Append(items.get(), replaced.get()) < 0;
  });
  if (failed) return nullptr;
  if (PySlice_Check(value)) {
    PyObject** ends = PySequence_Fast_ITEMS(items.get());
    return py::Ref::steal(PySlice_New(ends[0], ends[1], ends[2]));
  }
  if (is_deque(value)) {
    return py::Ref::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(deque_type()), items.get()));
  }
  return PyTuple_Check(value) ? py::Ref::steal(PyList_AsTuple(items.get())) : items;
}

Node* TraceTensors::dict_behind(py::Borrowed traced) {
  Node* node = node_behind(traced, state_);
  return node == nullptr ? nullptr : reads_.instance_dict_node(*node);
}

PyObject* TraceTensors::read_behind(py::Borrowed traced, py::Borrowed name) {
  Node* node = node_behind(traced, state_);
  if (node == nullptr) return nullptr;
  PyObject* value = state_.hooks.attribute(node->object.get(), name);
  if (value == nullptr) return nullptr;
  reads_.record(*node, Accessor::kDescriptor, name, 0, value);
  return present(value);
}

bool TraceTensors::load_tensor_state(py::Borrowed traced, py::Borrowed name) {
  if (!state_.hooks.is_unknown_state(traced, name)) return true;
  const py::Ref value = py::Ref::steal(read_behind(traced, name));
  if (!value) return PyErr_Occurred() == nullptr;
  return state_.hooks.learn_state(traced, name, value.get());
}

// A trace tensor begins with the attributes that the user gave to the tensor behind it.
void TraceTensors::read_attribute_behind(py::Borrowed traced, py::Borrowed name, py::Borrowed value) {
  Node* dict = dict_behind(traced);
  if (dict == nullptr || PyDict_GetItemWithError(dict->object.get(), name) != value) return;
  reads_.record_dict_item(*dict, name, value);
}

bool TraceTensors::read_all_attributes_behind(py::Borrowed traced) {
  Node* dict = dict_behind(traced);
  return dict == nullptr || reads_.read_original_contents(*dict);
}

void TraceTensors::read_hidden_names_behind(py::Borrowed traced) {
  if (Node* node = node_behind(traced, state_)) reads_.record_state_as(*node, StateKind::kHidden);
}

PyObject* TraceTensors::read_tensor_attribute(py::Borrowed traced, py::Borrowed name, PyObject* value) {
  py::Ref own = py::Ref::steal(value);
  if (is_spelled(name, "__dict__")) return read_all_attributes_behind(traced) ? present(own.release()) : nullptr;
  const bool tells_history = is_spelled(name, "grad_fn");  // only inputs that are leaves have no grad_fn
  static PyObject* const leaf = PyUnicode_InternFromString("is_leaf");
  if (tells_history && !load_tensor_state(traced, leaf)) return nullptr;
  if (!state_.hooks.require_known_state(traced, name)) return nullptr;
  if (!state_.hooks.is_unknown_state(traced, name)) return present(own.release());
  return load_tensor_state(traced, name) ? state_.hooks.attribute(traced, name) : nullptr;
}

}  // namespace thunder::interpreter
