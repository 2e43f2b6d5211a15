#include "interpreter/guards/guard_memo_builder.h"

#include <structmember.h>

#include <ranges>
#include <utility>

#include "interpreter/provenance/opaque_state.h"
#include "interpreter/python/deque.h"
#include "interpreter/python/object_parts.h"

namespace thunder::interpreter {
namespace {

/// The word that changes with each change of the dict, unlike that of any other dict; null when there is none.
const void* version_address(PyObject* dict) {
#if PY_VERSION_HEX < 0x030d0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#pragma GCC diagnostic pop
#else
  // 3.13 leaves the version alone when an attribute is set in the values that a dict shares with its object.
  static_cast<void>(dict);
  return nullptr;
#endif
}

bool is_heap_instance(PyObject* value) {
  return (Py_TYPE(value)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 || PyModule_Check(value);
}

}  // namespace

void MemoBuilder::add_word(const void* address) {
  const auto* word = static_cast<const std::uint64_t*>(address);
  memo_.words.push_back({word, *word});
  memo_.origins.push_back({0, 0});
}

void MemoBuilder::add_version(std::uint32_t node, PyObject* dict) {
  add_word(version_address(dict));
  memo_.origins.back().node = node;
}

bool MemoBuilder::add_type(PyTypeObject* type) {
  for (const MemoContents::TypeVersion& known : memo_.types) {
    if (known.type == type) return true;
  }
  const std::uint64_t version = version_of_type(type);
  if (version == 0) return false;
  memo_.pins.push_back(py::Ref::share(reinterpret_cast<PyObject*>(type)));
  memo_.types.push_back({type, version});
  return true;
}

void MemoBuilder::postpone(const GuardNode& part) {
  memo_.postponed.push_back(part.own);
  if (part.below.size() != 0) memo_.postponed.push_back(part.below);
}

void MemoBuilder::settle(const GuardStep& check, bool holds) {
  if (holds) return;
  if (block_ != kNoBlock) memo_.origins[block_].excluded |= check.needed_by & memo_.verdict;
  memo_.verdict &= ~check.needed_by;
}

bool MemoBuilder::open_new(std::uint32_t index, PyObject* value) {
  if (PyDict_Check(value)) {
    if (version_address(value) == nullptr) return false;
    add_version(index, value);
    // A part that is not looked at keeps an empty register: no word is about it.
    for (const std::uint32_t part : graph_.nodes[index].parts) run_.registers[part] = nullptr;
    return true;
  }
  if (PyList_Check(value) || PyTuple_Check(value)) {
    add_word(&reinterpret_cast<PyVarObject*>(value)->ob_size);
    if (PyList_Check(value)) add_word(&reinterpret_cast<PyListObject*>(value)->ob_item);
    return true;
  }
  if (PyAnySet_Check(value)) {
    add_word(&reinterpret_cast<PySetObject*>(value)->used);
    return true;
  }
  return !PyType_Check(value) || add_type(reinterpret_cast<PyTypeObject*>(value));
}

bool MemoBuilder::open(std::uint32_t index, PyObject* value) {
  if (!opened_.insert(index).second) return true;
  if (open_new(index, value)) return true;
  opened_.erase(index);
  return false;
}

void MemoBuilder::look_at_check(const GuardStep& check, std::uint32_t position, PyObject* value, bool in_slot) {
  const std::uint32_t index = check.node;
  const auto postpone_check = [&] { memo_.postponed.push_back({position, position + 1}); };
  if (value == nullptr) return settle(check, check.op == GuardOp::kAbsent);
  switch (check.op) {
    case GuardOp::kTensor:
      memo_.tensors.push_back(check);
      return;
    case GuardOp::kType:
      if (in_slot || is_heap_instance(value)) add_word(&value->ob_type);
      break;
    case GuardOp::kEqual:
      // The value in a slot might be replaced by another one at the same address.
      if (in_slot && Py_TYPE(value) == Py_TYPE(check.object)) memo_.pins.push_back(py::Ref::share(value));
      break;
    case GuardOp::kLength:
    case GuardOp::kTruth:
      if (length_of(value) >= 0 && (is_deque(value) || !open(index, value))) return postpone_check();
      break;
    case GuardOp::kKeys:
      if (PyODict_Check(value) || !open(index, value)) return postpone_check();
      break;
    case GuardOp::kMembers:
    case GuardOp::kContains:
      return postpone_check();
    case GuardOp::kState:
      if (may_change(static_cast<StateKind>(check.number))) return postpone_check();
      // A word of the weak reference tells when the object dies, whose address another one may get.
      if (in_slot && value != check.object && PyWeakref_CheckRefExact(check.object)) {
        add_word(&reinterpret_cast<PyWeakReference*>(check.object)->wr_object);
      } else if (in_slot) {
        memo_.pins.push_back(py::Ref::share(value));
      }
      break;
    default:
      break;
  }
  settle(check, check_value(check.op, value, check.number, check.object));
}

void MemoBuilder::look_at_own(std::uint32_t index, bool in_slot) {
  const GuardNode& node = graph_.nodes[index];
  PyObject* value = run_.registers[index];
  std::uint32_t position = node.own.begin + (node.is_constant ? 0 : 1);
  for (const GuardStep& check : node.checks) {
    if ((check.needed_by & memo_.verdict) != 0) look_at_check(check, position, value, in_slot);
    ++position;
  }
}

bool MemoBuilder::find_member(PyObject* owner, PyObject* name, PyObject*** slot, PyObject** value) {
  PyTypeObject* type = Py_TYPE(owner);
  PyObject* found = _PyType_Lookup(type, name);
  if (found == nullptr || Py_TYPE(found) != &PyMemberDescr_Type || !add_type(type)) return false;
  const auto* descriptor = reinterpret_cast<PyMemberDescrObject*>(found);
  if (!PyObject_TypeCheck(owner, descriptor->d_common.d_type)) return false;
  const PyMemberDef& member = *descriptor->d_member;
  if ((member.type != T_OBJECT && member.type != T_OBJECT_EX) || (member.flags & ~READONLY) != 0) return false;
  *slot = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(owner) + member.offset);
  *value = **slot == nullptr && member.type == T_OBJECT ? Py_None : **slot;
  return true;
}

bool MemoBuilder::find_slot(const GuardStep& load, std::uint32_t owner_index, PyObject*** slot, PyObject** value) {
  PyObject* owner = run_.registers[owner_index];
  *slot = nullptr;
  switch (load.op) {
    case GuardOp::kLoadDictItem:
    case GuardOp::kLoadTypeAttribute:
      // Looked up before the type's version is read: looking up makes the version.
      *value = load_part(load.op, owner, load.number, load.object, run_.scratch);
      return open(owner_index, owner);
    case GuardOp::kLoadDict: {
      *value = load_part(load.op, owner, 0, nullptr, run_.scratch);
      if (*value == nullptr) return false;
      *slot = _PyObject_GetDictPtr(owner);
      return *slot != nullptr && **slot == *value;
    }
    case GuardOp::kLoadItem:
      if (!(PyList_Check(owner) || PyTuple_Check(owner)) || !open(owner_index, owner)) return false;
      *value = nullptr;
      if (load.number >= Py_SIZE(owner)) return true;
      *slot = PySequence_Fast_ITEMS(owner) + load.number;
      break;
    case GuardOp::kLoadCell:
      if (!PyCell_Check(owner)) return false;
      *slot = &reinterpret_cast<PyCellObject*>(owner)->ob_ref;
      break;
    case GuardOp::kLoadFunctionPart:
      if (!PyFunction_Check(owner)) return false;
      *slot = function_slot(owner, static_cast<FunctionPart>(load.number));
      break;
    case GuardOp::kLoadReferent: {
      if (!PyWeakref_CheckRefExact(owner)) return false;
      *slot = &reinterpret_cast<PyWeakReference*>(owner)->wr_object;
      *value = **slot == Py_None ? nullptr : **slot;
      return true;
    }
    case GuardOp::kLoadDescriptor:
      return find_member(owner, load.object, slot, value);
    default:
      return false;
  }
  *value = **slot;
  return true;
}

void MemoBuilder::look_at_part(std::uint32_t index, std::uint32_t owner) {
  const GuardNode& part = graph_.nodes[index];
  if ((part.load.needed_by & memo_.verdict) == 0) return;
  PyObject** slot = nullptr;
  PyObject* value = nullptr;
  if (!find_slot(part.load, owner, &slot, &value)) return postpone(part);
  run_.registers[index] = value;
  if (slot != nullptr) add_word(slot);
  look_at_own(index, slot != nullptr);
}

void MemoBuilder::look_at_parts(std::uint32_t index, std::vector<std::uint32_t>& pending) {
  const GuardNode& node = graph_.nodes[index];
  PyObject* value = run_.registers[index];
  if (value == nullptr || node.parts.empty()) return;
  if (PyDict_Check(value) && open(index, value)) {
    block_ = memo_.words.size() - 1;
    while (memo_.origins[block_].node != index) --block_;
  }
  const std::size_t postponed = memo_.postponed.size();
  for (const std::uint32_t part : node.parts) look_at_part(part, index);
  block_ = kNoBlock;
  for (const std::uint32_t part : node.parts | std::views::reverse) {
    bool is_postponed = false;
    for (std::size_t i = postponed; i < memo_.postponed.size() && !is_postponed; ++i) {
      is_postponed = memo_.postponed[i].begin == graph_.nodes[part].own.begin;
    }
    if (!is_postponed) pending.push_back(part);
  }
}

// By a list rather than by recursion: a linked list may be longer than the stack is deep.
void MemoBuilder::look_below(std::uint32_t root) {
  std::vector<std::uint32_t> pending;
  look_at_parts(root, pending);
  while (!pending.empty()) {
    const std::uint32_t index = pending.back();
    pending.pop_back();
    if ((graph_.nodes[index].load.needed_by & memo_.verdict) != 0) look_at_parts(index, pending);
  }
}

MemoContents MemoBuilder::build(std::span<const std::uint32_t> roots, PyObject* subject) {
  for (const std::uint32_t root : roots) {
    if (subject != nullptr) {
      add_word(&subject->ob_type);
    } else {
      look_at_own(root, false);
    }
    look_below(root);
  }
  return std::move(memo_);
}

}  // namespace thunder::interpreter
