#include "interpreter/provenance/part_reads.h"

#include <algorithm>
#include <utility>

#include "interpreter/python/slots.h"

namespace thunder::interpreter {

void PartReads::end() {
  --depth_;
  for (Variable& variable : variables_) {
    if (!std::exchange(variable.is_known, true)) variable.value = py::Ref::share(PyCell_GET(variable.cell.get()));
  }
}

bool PartReads::reads_same_variables() const {
  return std::ranges::all_of(
      variables_, [](const Variable& variable) { return PyCell_GET(variable.cell.get()) == variable.value.get(); });
}

void PartReads::begin_trial() {
  trial_ = Trial{true, false, state_.journal.write_count()};
  begin();
}

bool PartReads::end_trial() {
  end();
  const Trial done = std::exchange(trial_, Trial());
  return !done.has_read && state_.journal.write_count() == done.writes;
}

bool PartReads::is_of_library(PyTypeObject* type, py::Borrowed name) const {
  for (Py_ssize_t i = 0; state_.options.is_library && i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* attributes = dict_of_type(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i)));
    if (PyDict_GetItemWithError(attributes, name) == nullptr) continue;
    PyObject* module_name = PyDict_GetItemString(attributes, "__module__");
    PyObject* module =
        module_name == nullptr ? nullptr : PyDict_GetItemWithError(PyImport_GetModuleDict(), module_name);
    return module != nullptr && PyModule_Check(module) && state_.options.is_library(PyModule_GetDict(module));
  }
  return false;
}

void PartReads::note(const Node& owner, py::Borrowed value) {
  if (!trial_.runs || value == nullptr || trial_.has_read) return;
  PyTypeObject* type = Py_TYPE(value);
  const bool is_definition = PyCallable_Check(value) != 0 || PyModule_Check(value) || PyCell_Check(value) ||
                             type == &PyStaticMethod_Type || type == &PyClassMethod_Type || type == &PyProperty_Type ||
                             type->tp_descr_get != nullptr;
  if (is_definition) return;
  PyObject* from = owner.object.get();
  if (from != nullptr && PyDict_Check(from) && state_.options.is_library && state_.options.is_library(from)) return;
  trial_.has_read = true;
}

void PartReads::note_type_attribute(const Node& owner, py::Borrowed name) {
  auto* type = reinterpret_cast<PyTypeObject*>(owner.object.get());
  if (trial_.runs && !is_of_library(type, name)) note(owner, _PyType_Lookup(type, name));
}

void PartReads::note_cell(py::Borrowed cell, py::Borrowed value) {
  if (depth_ == 0) return;
  variables_.push_back({py::Ref::share(cell), nullptr});
  // The program made the cell, and may read and write it at other times too.
  trial_.has_read |= trial_.runs && state_.provenance.find(cell) == nullptr && value != nullptr &&
                     PyCallable_Check(value) == 0 && PyObject_IS_GC(value) && !PyTuple_Check(value) &&
                     !PyModule_Check(value) && !state_.hooks.is_traced(value);
}

// Into objects that the program made, too. Containers that a trial writes to are its own: see `note_cell`.
void PartReads::note_write(WriteKind kind) {
  trial_.has_read |= kind == WriteKind::kAttribute || kind == WriteKind::kDeleteAttribute || kind == WriteKind::kCell;
}

void PartReads::note_grad_mode() {
  PyObject* globals = PyEval_GetGlobals();
  trial_.has_read |= globals != nullptr && state_.options.is_library && !state_.options.is_library(globals);
}

}  // namespace thunder::interpreter
