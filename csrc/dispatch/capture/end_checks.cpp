#include "dispatch/capture/end_checks.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "dispatch/call/output_plan.h"
#include "dispatch/capture/substitutes.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/python_ref.h"
#include "transforms/functorch_layer.h"

namespace thunder::dispatch {

void refuse_change(const std::string& change) {
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: the function leaves " + change + " changed; set it outside");
}

void require_restored(const ThreadState& before) {
  ThreadState after = ThreadState::now();
  after.grad_mode = before.grad_mode;
  if (after == before && !has_unknown_layers()) return;
  const std::vector<ThreadState::Entry> was = before.entries(), is = after.entries();
  std::string change = "a mode";
  for (std::size_t i = 0; i < was.size(); ++i) {
    if (was[i].value != is[i].value) change = was[i].expression;
  }
  refuse_change(change);
}

void require_same_variables(const interpreter::Tracker& tracker) {
  if (tracker.parts().reads_same_variables()) return;
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: a part under torch.utils.checkpoint, or a hook or backward, reads a variable of the "
                  "function around it that is assigned anew afterwards; give it as an argument, or as a default");
}

std::int64_t next_hook_id() {
  const py::Ref next = loaded_function("torch.utils.hooks", "RemovableHandle.next_id");
  return next && PyLong_CheckExact(next.get()) ? PyLong_AsLongLong(next.get()) : 0;
}

namespace {

/// Parts that a call returns or stores. A key that is only deleted is not one of them.
std::vector<bool> find_kept(const interpreter::Structure& structure) {
  std::vector<bool> kept(structure.parts().size());
  kept[structure.result()] = true;
  for (const interpreter::Effect& effect : structure.effects()) {
    const bool keeps_key = has_key(effect.kind) && effect.kind != interpreter::EffectKind::kDeleteItem;
    if (keeps_key) kept[effect.key] = true;
    if (has_value(effect.kind)) kept[effect.value] = true;
  }
  for (const interpreter::StructurePart& part : structure.parts()) {
    for (const std::uint32_t child : part.children) kept[child] = true;
  }
  return kept;
}

/// Whether an object is a number of a hook from `first` on.
bool is_hook_number(PyObject* object, std::int64_t first) {
  int overflow = 0;
  const std::int64_t number = PyLong_CheckExact(object) ? PyLong_AsLongLongAndOverflow(object, &overflow) : -1;
  return overflow == 0 && number >= first && number < next_hook_id();
}

}  // namespace

bool keeps_hook_number(const interpreter::Structure& structure, std::int64_t first) {
  if (first == next_hook_id()) return false;
  const py::Ref handle = loaded_function("torch.utils.hooks", "RemovableHandle");
  const std::vector<bool> kept = find_kept(structure);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const interpreter::StructurePart& part = structure.parts()[i];
    PyObject* object = part.object.get();
    if (object == nullptr || !kept[i]) continue;
    const bool is_handle =
        part.kind == interpreter::PartKind::kInstance && PyType_Check(object) &&
        PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(object), reinterpret_cast<PyTypeObject*>(handle.get())) != 0;
    if (is_handle || is_hook_number(object, first)) return true;
  }
  return false;
}

ir::SourceLocation registration_line(const interpreter::Journal& journal, std::int64_t first) {
  for (const interpreter::Record& record : journal.records()) {
    const auto is_number = [&](const interpreter::WrittenKey& key) { return is_hook_number(key.key.get(), first); };
    if (record.store == interpreter::Store::kDict && std::ranges::any_of(record.keys, is_number))
      return record.location;
  }
  return {};
}

void require_plain_output(PyObject* output, interpreter::Tracker& tracker) {
  static PyObject* const finalizer = PyUnicode_InternFromString("__del__");
  PyTypeObject* type = Py_TYPE(output);
  auto* as_object = reinterpret_cast<PyObject*>(type);
  if (as_object == plain_tensor_type() || keeps_class_to_itself(as_object)) return;
  const py::Ref attributes = interpreter::instance_dict(output);
  PyErr_Clear();
  const char* problem = nullptr;
  if (tracker.reads().may_be_made(type)) problem = "which the function makes itself";
  if (attributes && PyDict_GET_SIZE(attributes.get()) > 0) problem = "with attributes that the function sets";
  if (type->tp_basicsize != reinterpret_cast<PyTypeObject*>(plain_tensor_type())->tp_basicsize) problem = "with slots";
  if (_PyType_Lookup(type, finalizer) != nullptr) problem = "with a __del__";
  if (problem == nullptr) return;
  throw UserError(ErrorKind::kNotImplemented,
                  std::string("thunder.jit: expected results that are plain tensors, got one of the tensor subclass ") +
                      type->tp_name + " " + problem + "; convert it with tensor.as_subclass(torch.Tensor)");
}

}  // namespace thunder::dispatch
