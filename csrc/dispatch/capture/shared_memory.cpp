#include "dispatch/capture/shared_memory.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "interpreter/provenance/opaque_state.h"
#include "interpreter/provenance/provenance_constant.h"

namespace thunder::dispatch {
namespace {

/// Whether an object, such as an array, lies in the memory of a tensor, or the other way round.
bool shares_memory(PyObject* object, const at::Tensor& tensor) {
  Py_buffer view;
  if (PyObject_GetBuffer(object, &view, PyBUF_STRIDED_RO) < 0) {
    PyErr_Clear();
    return false;
  }
  const auto* first = static_cast<const char*>(view.buf);
  const auto* second = static_cast<const char*>(tensor.storage().data());
  const bool shares = first < second + tensor.storage().nbytes() && second < first + std::max<Py_ssize_t>(view.len, 1);
  PyBuffer_Release(&view);
  return shares;
}

bool is_buffer(const interpreter::Node& node) {
  PyObject* object = node.object.get();
  return object != nullptr && interpreter::state_kind(object) == interpreter::StateKind::kBuffer;
}

/// Whether both dicts hold the same objects under the same names.
bool holds_same_objects(PyObject* left, PyObject* right) {
  if (PyDict_Size(left) != PyDict_Size(right)) return false;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(left, &position, &key, &value)) {
    if (PyDict_GetItemWithError(right, key) != value) return false;
  }
  return true;
}

}  // namespace

void require_no_shared_effects(const tracer::Recorder& recorder, interpreter::Tracker& tracker) {
  const interpreter::Provenance& provenance = tracker.provenance();
  recorder.arrays.require_unwritten();
  recorder.arrays.require_one_owner([&](const tracer::TraceState& root) { return recorder.memory.has(root); });
  if (const PyObject* written = tracker.journal().written_memory()) {
    throw UserError(ErrorKind::kNotImplemented,
                    std::string("thunder.jit: writes to the memory of an object of type '") +
                        Py_TYPE(written)->tp_name + "' from outside of the function; write to it after the call");
  }
  for (const at::Tensor& memory : recorder.arrays.returned()) {
    const bool is_from_outside = std::ranges::any_of(provenance.nodes(), [&](const interpreter::Node& node) {
      return is_buffer(node) && shares_memory(node.object.get(), memory);
    });
    if (!is_from_outside) continue;
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: returns a tensor over the memory of an array from outside of the function; return a "
                    "copy of it");
  }
}

bool reads_buffers(const interpreter::Tracker& tracker) {
  return std::ranges::any_of(tracker.provenance().nodes(), is_buffer);
}

void require_same_attributes(const TorchHooks& hooks) {
  for (const TorchHooks::InputState& state : hooks.states()) {
    const py::Ref own = interpreter::instance_dict(state.traced.get());
    const py::Ref real = interpreter::instance_dict(state.real.get());
    if (!own || !real || holds_same_objects(own.get(), real.get())) continue;
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: sets an attribute of a tensor from outside of the function; set it after the call");
  }
}

}  // namespace thunder::dispatch
