#include "interpreter/guard_program.h"

#include "interpreter/provenance_constant.h"

namespace thunder::interpreter {
namespace {

#if PY_VERSION_HEX < 0x030e0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
std::uint64_t version_of_dict(py::Borrowed dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }
#pragma GCC diagnostic pop
#else
std::uint64_t version_of_dict(py::Borrowed) { return 0; }
#endif

std::uint64_t version_of_type(py::Borrowed object) {
  const auto* type = reinterpret_cast<PyTypeObject*>(object);
#if PY_VERSION_HEX < 0x030c0000
  if ((type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) == 0) return 0;
#endif
  return type->tp_version_tag;
}

// The hash of a string is known after its first use; other keys are numbers and tuples, whose hashing runs no user
// code.
py::Borrowed dict_item(py::Borrowed dict, py::Borrowed key) {
  const Py_hash_t hash = PyObject_Hash(key);
  PyObject* value = hash == -1 ? nullptr : _PyDict_GetItem_KnownHash(dict, key, hash);
  if (value == nullptr && PyErr_Occurred() != nullptr) PyErr_Clear();
  return value;
}

py::Borrowed existing_dict(py::Borrowed object, GuardScratch& scratch) {
  if (PyModule_Check(object)) return PyModule_GetDict(object);
#if PY_VERSION_HEX < 0x030d0000
  PyObject** place = _PyObject_GetDictPtr(object);
  if (place != nullptr && *place != nullptr) return *place;
  if (place == nullptr) return nullptr;
#endif
  py::Ref dict = instance_dict(object);
  if (!dict) return nullptr;
  scratch.keep(Py_NewRef(dict.get()));
  return dict.get();
}

py::Borrowed item_of(py::Borrowed sequence, std::int64_t index) {
  if (!PyList_Check(sequence) && !PyTuple_Check(sequence)) return nullptr;
  return index < Py_SIZE(sequence) ? PySequence_Fast_GET_ITEM(sequence, index) : nullptr;
}

py::Borrowed through_descriptor(py::Borrowed object, py::Borrowed name, GuardScratch& scratch) {
  PyObject* value = PyObject_GenericGetAttr(object, name);
  if (value == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  scratch.keep(value);
  return value;
}

bool has_keys(py::Borrowed dict, py::Borrowed keys) {
  if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) return false;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  for (Py_ssize_t i = 0; PyDict_Next(dict, &position, &key, &value); ++i) {
    if (!equal_constants(key, PyTuple_GET_ITEM(keys, i))) return false;
  }
  return true;
}

bool has_members(py::Borrowed set, py::Borrowed members) {
  if (!PyAnySet_Check(set)) return false;
  const int equal = PyObject_RichCompareBool(members, set, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal > 0;
}

std::int64_t length_of(py::Borrowed container) {
  if (PyDict_Check(container)) return PyDict_GET_SIZE(container);
  if (PyList_Check(container) || PyTuple_Check(container)) return Py_SIZE(container);
  return PyAnySet_Check(container) ? PySet_GET_SIZE(container) : -1;
}

}  // namespace

bool GuardProgram::step(const GuardInstruction& instruction, GuardScratch& scratch) const {
  PyObject* const source = registers_[instruction.source];
  PyObject*& target = registers_[instruction.target];
  switch (instruction.op) {
    case GuardOp::kLoadDict:
      return (target = existing_dict(source, scratch)) != nullptr;
    case GuardOp::kLoadItem:
      return (target = item_of(source, instruction.number)) != nullptr;
    case GuardOp::kLoadCell:
      target = PyCell_GET(source);
      return (target == nullptr) == (instruction.number != 0);
    case GuardOp::kLoadDescriptor:
      target = through_descriptor(source, instruction.object, scratch);
      return (target == nullptr) == (instruction.number != 0);
    case GuardOp::kLoadDictItem:
      return (target = dict_item(source, instruction.object)) != nullptr;
    case GuardOp::kDictAbsent:
      return dict_item(source, instruction.object) == nullptr;
    case GuardOp::kEndDict:
      versions_[instruction.target] = version_of_dict(source);
      return true;
    case GuardOp::kEndType:
      versions_[instruction.target] = version_of_type(source);
      return true;
    case GuardOp::kTypeAttribute:
      return _PyType_Lookup(reinterpret_cast<PyTypeObject*>(source), instruction.object) == instruction.expected;
    case GuardOp::kIs:
      return source == instruction.object;
    case GuardOp::kEqual:
      return equal_constants(instruction.object, source);
    case GuardOp::kType:
      return reinterpret_cast<PyObject*>(Py_TYPE(source)) == instruction.object;
    case GuardOp::kSame:
      return source == target;
    case GuardOp::kLength:
      return length_of(source) == instruction.number;
    case GuardOp::kTruth:
      return (length_of(source) != 0) == (instruction.number != 0);
    case GuardOp::kKeys:
      return has_keys(source, instruction.object);
    case GuardOp::kMembers:
      return has_members(source, instruction.object);
    case GuardOp::kLoadArgument:
    case GuardOp::kLoadKeyword:
    case GuardOp::kBeginDict:
    case GuardOp::kBeginType:
    case GuardOp::kTensor:
    case GuardOp::kAccept:
      break;
  }
  return false;
}

std::int64_t GuardProgram::run(const CallArguments& call, const TensorCheck& check, PyObject** tensors,
                               GuardScratch& scratch) const {
  const Py_ssize_t name_count = call.names == nullptr ? 0 : PyTuple_GET_SIZE(call.names);
  const Py_ssize_t expected_names = names_ ? PyTuple_GET_SIZE(names_.get()) : 0;
  if (call.positional != positional_ || name_count != expected_names) return 0;
  if (name_count > 0 && !equal_constants(names_.get(), call.names)) return 0;

  PyObject** const registers = registers_.get();
  for (const GuardInstruction* next = instructions_.data();; ++next) {
    switch (next->op) {
      case GuardOp::kLoadArgument:
        registers[next->target] = call.values[next->number];
        break;
      case GuardOp::kLoadKeyword:
        registers[next->target] = call.values[call.positional + static_cast<std::size_t>(next->number)];
        break;
      case GuardOp::kBeginDict: {
        const std::uint64_t version = version_of_dict(registers[next->source]);
        if (version != 0 && version == versions_[next->target])
          next = &instructions_[static_cast<std::size_t>(next->number)];
        break;
      }
      case GuardOp::kBeginType: {
        const std::uint64_t version = version_of_type(registers[next->source]);
        if (version != 0 && version == versions_[next->target])
          next = &instructions_[static_cast<std::size_t>(next->number)];
        break;
      }
      case GuardOp::kTensor:
        if (!check.matches(check.guards, static_cast<std::size_t>(next->number), registers[next->source])) {
          return next->guard;
        }
        tensors[next->number] = registers[next->source];
        break;
      case GuardOp::kAccept:
        return kAccepted;
      case GuardOp::kLoadDict:
      case GuardOp::kLoadItem:
      case GuardOp::kLoadCell:
      case GuardOp::kLoadDescriptor:
      case GuardOp::kLoadDictItem:
      case GuardOp::kDictAbsent:
      case GuardOp::kEndDict:
      case GuardOp::kEndType:
      case GuardOp::kTypeAttribute:
      case GuardOp::kIs:
      case GuardOp::kEqual:
      case GuardOp::kType:
      case GuardOp::kSame:
      case GuardOp::kLength:
      case GuardOp::kTruth:
      case GuardOp::kKeys:
      case GuardOp::kMembers:
        if (!step(*next, scratch)) return next->guard;
    }
  }
}

int GuardProgram::visit(visitproc visitor, void* argument) const {
  for (const py::Ref& constant : constants_) {
    if (const int result = visitor(constant.get(), argument); result != 0) return result;
  }
  return 0;
}

}  // namespace thunder::interpreter
