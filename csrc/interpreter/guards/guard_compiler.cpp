#include "interpreter/guards/guard_compiler.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <unordered_set>
#include <utility>

#include "interpreter/guards/weak_keys.h"
#include "interpreter/provenance/opaque_state.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

bool is_fact(Accessor accessor) {
  return accessor == Accessor::kLength || accessor == Accessor::kTruth || accessor == Accessor::kKeys ||
         accessor == Accessor::kMembers || accessor == Accessor::kContains || accessor == Accessor::kState;
}

std::string describe_expectation(const Node& owner, const Read& read) {
  if (read.accessor == Accessor::kState) {
    return describe_state(owner.object.get(), static_cast<StateKind>(read.index), read.value.get());
  }
  switch (read.expectation) {
    case Expectation::kIdentity:
    case Expectation::kEquality:
      return describe(read.value.get());
    case Expectation::kAbsent:
      return "nothing";
    case Expectation::kPresent:
      return "anything";
    case Expectation::kObject:
      return std::string("an object of type ") + Py_TYPE(read.value.get())->tp_name;
    case Expectation::kSame:
      return "the same object as " + expression(*read.part);
    case Expectation::kNumber:
      return std::string("a number of type ") + Py_TYPE(read.value.get())->tp_name;
  }
  return {};
}

/// Whether the type of a constant can change, as by `self.__class__ = …`: CPython takes types that can change, and
/// those of modules.
bool is_reclassifiable(const Node& node) {
  PyObject* object = node.object.get();
  return !is_immutable_type(Py_TYPE(object)) || PyModule_Check(object);
}

GuardOp operation_of(Accessor accessor) {
  switch (accessor) {
    case Accessor::kArgument:
      return GuardOp::kLoadArgument;
    case Accessor::kKeyword:
      return GuardOp::kLoadKeyword;
    case Accessor::kItem:
      return GuardOp::kLoadItem;
    case Accessor::kCell:
      return GuardOp::kLoadCell;
    case Accessor::kDescriptor:
      return GuardOp::kLoadDescriptor;
    case Accessor::kDictItem:
      return GuardOp::kLoadDictItem;
    case Accessor::kTypeAttribute:
      return GuardOp::kLoadTypeAttribute;
    case Accessor::kFunctionPart:
      return GuardOp::kLoadFunctionPart;
    case Accessor::kReferent:
      return GuardOp::kLoadReferent;
    case Accessor::kCall:
      return GuardOp::kLoadCall;
    case Accessor::kConversion:
      return GuardOp::kLoadConversion;
    case Accessor::kState:
      return GuardOp::kState;
    case Accessor::kOther:
      return GuardOp::kNotSame;
    case Accessor::kPresence:
      return GuardOp::kLoadDictItem;
    case Accessor::kLength:
      return GuardOp::kLength;
    case Accessor::kTruth:
      return GuardOp::kTruth;
    case Accessor::kKeys:
      return GuardOp::kKeys;
    case Accessor::kMembers:
      return GuardOp::kMembers;
    case Accessor::kContains:
      return GuardOp::kContains;
    case Accessor::kConstant:
    case Accessor::kInstanceDict:
      break;
  }
  return GuardOp::kLoadDict;
}

GuardOp operation_of(Expectation expectation) {
  switch (expectation) {
    case Expectation::kIdentity:
      return GuardOp::kIs;
    case Expectation::kEquality:
      return GuardOp::kEqual;
    case Expectation::kAbsent:
      return GuardOp::kAbsent;
    case Expectation::kPresent:
      return GuardOp::kPresent;
    case Expectation::kObject:
      return GuardOp::kType;
    case Expectation::kNumber:
      return GuardOp::kTensor;
    case Expectation::kSame:
      break;
  }
  return GuardOp::kSame;
}

}  // namespace

GuardInstruction& GuardCompiler::emit(GuardOp op, std::uint32_t target, std::uint32_t source, std::uint32_t guard) {
  return program_.instructions_.emplace_back(GuardInstruction{op, target, source, guard, 0, nullptr});
}

PyObject* GuardCompiler::keep(py::Borrowed object) {
  if (object != nullptr) program_.kept_.push_back(py::Ref::share(object));
  return object;
}

// Only an object whose identity is guarded besides: where that fails for a dead one, it does not count that the key is
// not found.
py::Ref GuardCompiler::reference_to(py::Borrowed object, bool is_member) const {
  if (is_member && is_real_tensor(object, hooks_)) return py::Ref::steal(PyWeakref_NewRef(object, nullptr));
  const Node* node = provenance_.find(object);
  const Read* identity =
      node == nullptr || node->is_constant()
          ? nullptr
          : provenance_.find_read(*node, Accessor::kState, nullptr, static_cast<Py_ssize_t>(StateKind::kIdentity));
  if (identity == nullptr || identity->value.get() == object) return nullptr;
  return identity->value;
}

void GuardCompiler::set_key(GuardInstruction& step, py::Borrowed key) {
  const bool are_members = step.op == GuardOp::kKeys || step.op == GuardOp::kMembers;
  const py::Ref weak = key == nullptr
                           ? py::Ref()
                           : weak_key(key, [&](py::Borrowed object) { return reference_to(object, are_members); });
  if (weak) step.number |= kHeldWeakly;
  step.object = keep(weak ? weak.get() : key);
}

std::uint32_t GuardCompiler::add_info(const Node& owner, const Read& read) {
  const bool is_object = read.part != nullptr && read.expectation == Expectation::kObject;
  std::string path = is_object ? expression(*read.part) : expression(owner, read);
  std::string expected =
      is_object && read.part->trace_tensor ? hooks_.describe(read.value.get()) : describe_expectation(owner, read);
  return program_.infos_.add({std::move(path), std::move(expected), read.location});
}

void GuardCompiler::emit_fact(const Node& owner, const Read& read) {
  const std::uint32_t guard = add_info(owner, read);
  GuardInstruction& check = emit(operation_of(read.accessor), 0, register_of(owner), guard);
  PyObject* value = read.value.get();
  if (read.accessor == Accessor::kLength) {
    check.number = PyLong_AsSsize_t(value);
  } else if (read.accessor == Accessor::kTruth) {
    check.number = value == Py_True;
  } else if (read.accessor == Accessor::kState) {
    check.number = read.index;
    check.object = keep(value);
  } else if (read.accessor == Accessor::kContains) {
    check.number = value == Py_True;
    set_key(check, read.key.get());
  } else {
    set_key(check, value);
  }
}

void GuardCompiler::emit_expectation(const Read& read, std::uint32_t loaded, std::uint32_t guard) {
  if (read.expectation == Expectation::kObject) return emit_object(*read.part, guard);
  if (read.expectation == Expectation::kSame) {
    same_checks_.push_back({GuardOp::kSame, register_of(*read.part), loaded, guard, 0, nullptr});
    return;
  }
  GuardInstruction& check = emit(operation_of(read.expectation), 0, loaded, guard);
  const bool has_value = read.expectation == Expectation::kIdentity || read.expectation == Expectation::kEquality;
  if (has_value) check.object = keep(read.value.get());
  if (read.expectation == Expectation::kNumber) {
    check.object = keep(reinterpret_cast<PyObject*>(Py_TYPE(read.value.get())));
    check.number = static_cast<std::int64_t>(read.input);
  }
}

void GuardCompiler::emit_read(const Node& owner, const Read& read) {
  if (is_fact(read.accessor)) return emit_fact(owner, read);
  const std::uint32_t guard = add_info(owner, read);
  if (read.accessor == Accessor::kOther) {
    same_checks_.push_back({GuardOp::kNotSame, register_of(*read.part), register_of(owner), guard, 0, nullptr});
    return;
  }
  const bool is_object = read.expectation == Expectation::kObject;
  const bool has_register = is_object || (read.expectation == Expectation::kEquality && read.part != nullptr);
  const std::uint32_t loaded = has_register ? register_of(*read.part) : ++scratch_register_;
  GuardInstruction& load = emit(operation_of(read.accessor), loaded, register_of(owner), guard);
  load.number = read.index;
  load.op == GuardOp::kLoadDictItem ? set_key(load, read.key.get()) : void(load.object = keep(read.key.get()));
  if (read.accessor == Accessor::kKeyword) {
    load.number = PySequence_Index(program_.names_.get(), read.key.get());
  }
  emit_expectation(read, loaded, guard);
}

namespace {

std::optional<std::int64_t> number_of_key(py::Borrowed key) {
  if (key == nullptr || !PyLong_CheckExact(static_cast<PyObject*>(key))) return std::nullopt;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(key, &overflow);
  return overflow == 0 ? std::optional<std::int64_t>(number) : std::nullopt;
}

/// The keys of a table of hooks, in order; empty: they are not known to be numbers of handles and nothing else.
std::vector<std::int64_t> keys_of_hooks(const Node& table) {
  std::vector<std::int64_t> keys;
  if (table.keys_are_seen || table.is_written || !is_table_of_hooks(table)) return keys;
  const auto found = std::ranges::find(table.reads, Accessor::kKeys, &Read::accessor);
  for (Py_ssize_t i = 0; found != table.reads.end() && i < PyTuple_GET_SIZE(found->value.get()); ++i) {
    const auto key = number_of_key(PyTuple_GET_ITEM(found->value.get(), i));
    if (!key) return {};
    keys.push_back(*key);
  }
  const bool are_plain = std::ranges::all_of(table.reads, [&](const Read& read) {
    const bool is_item = read.accessor == Accessor::kDictItem || read.accessor == Accessor::kPresence;
    if (!is_item) return is_fact(read.accessor) && read.accessor != Accessor::kState;
    const auto key = number_of_key(read.key.get());
    return key && read.value.get() != nullptr && std::ranges::find(keys, *key) != keys.end();
  });
  return are_plain ? keys : std::vector<std::int64_t>();
}

/// Whether nothing is in the table at any call for which its length is guarded.
bool is_empty_table(const Node& table) { return !table.is_written && PyDict_GET_SIZE(table.object.get()) == 0; }

}  // namespace

void GuardCompiler::find_hook_tables() {
  for (const Node& node : provenance_.nodes()) {
    std::vector<std::int64_t> keys = keys_of_hooks(node);
    if (!keys.empty()) hook_tables_.emplace(&node, std::move(keys));
  }
  // Where another table tells something of one hook, such as that it takes keyword arguments, the key is guarded.
  for (const Node& node : provenance_.nodes()) {
    if (hook_tables_.contains(&node) || !is_table_of_hooks(node) || is_empty_table(node)) continue;
    for (const Read& read : node.reads) {
      const auto key = number_of_key(read.key.get());
      std::erase_if(hook_tables_, [&](const auto& table) {
        return key && std::ranges::find(table.second, *key) != table.second.end();
      });
    }
  }
}

bool GuardCompiler::emit_hook_read(const Node& owner, const Read& read) {
  static PyObject* const values = [] {
    const py::Ref module = py::Ref::steal(py::import_module("operator"));
    return module ? PyObject_CallMethod(module.get(), "methodcaller", "s", "values") : nullptr;
  }();
  const auto table = hook_tables_.find(&owner);
  const auto key = number_of_key(read.key.get());
  const auto is_of_table = [&](const auto& each) {
    return key && std::ranges::find(each.second, *key) != each.second.end();
  };
  const auto check_length = [&](std::size_t length) {
    emit(GuardOp::kLength, 0, register_of(owner), add_info(owner, read)).number = static_cast<std::int64_t>(length);
    return true;
  };
  if (table == hook_tables_.end()) {
    const bool belongs =
        is_table_of_hooks(owner) && is_empty_table(owner) && std::ranges::any_of(hook_tables_, is_of_table);
    return belongs && check_length(0);
  }
  if (read.accessor == Accessor::kKeys) return check_length(table->second.size());
  if (!key) return false;
  if (read.accessor == Accessor::kPresence) return true;  // it is one of the keys
  const std::uint32_t guard = add_info(owner, read);
  const std::uint32_t view = ++scratch_register_, tuple = ++scratch_register_;
  emit(GuardOp::kLoadConversion, view, register_of(owner), guard).object = keep(values);
  emit(GuardOp::kLoadConversion, tuple, view, guard).object = keep(reinterpret_cast<PyObject*>(&PyTuple_Type));
  const bool has_register = read.part != nullptr && read.expectation != Expectation::kSame;
  const std::uint32_t loaded = has_register ? register_of(*read.part) : ++scratch_register_;
  emit(GuardOp::kLoadItem, loaded, tuple, guard).number =
      std::ranges::find(table->second, *key) - table->second.begin();
  emit_expectation(read, loaded, guard);
  return true;
}

void GuardCompiler::emit_object(const Node& part, std::uint32_t guard) {
  PyObject* object = part.object.get();
  GuardInstruction& check = emit(part.trace_tensor ? GuardOp::kTensor : GuardOp::kType, 0, register_of(part), guard);
  check.object = keep(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  if (part.trace_tensor) check.number = static_cast<std::int64_t>(hooks_.input_index(object));
}

void GuardCompiler::emit_instance_dict(const Node& owner, const Node& dict) {
  const std::uint32_t guard = program_.infos_.add({expression(dict), "a dict", {}});
  emit(GuardOp::kLoadDict, register_of(dict), register_of(owner), guard);
  emit(GuardOp::kPresent, 0, register_of(dict), guard);
}

namespace {

/// The keys of dicts that a program writes to, by their hashes: all keys if any is no string.
class WrittenKeys {
 public:
  void add(const Node& written) {
    are_all_ = are_all_ || written.written_keys.empty();
    for (const py::Ref& key : written.written_keys) {
      are_all_ = are_all_ || !PyUnicode_CheckExact(key.get());
      if (!are_all_) hashes_.insert(PyObject_Hash(key.get()));
    }
  }
  /// Whether something that the program reads of an object may be under one of the keys.
  [[nodiscard]] bool are_read(const Node& node) const {
    return are_all_ || std::ranges::any_of(node.reads, [&](const Read& read) {
             const bool is_of_item = read.accessor == Accessor::kDictItem || read.accessor == Accessor::kPresence;
             const bool is_told = is_of_item && PyUnicode_CheckExact(read.key.get());
             return !is_told || hashes_.contains(PyObject_Hash(read.key.get()));
           });
  }

 private:
  bool are_all_ = false;
  std::unordered_set<Py_hash_t> hashes_;
};

}  // namespace

void GuardCompiler::emit_distinct_objects() {
  std::vector<const PyTypeObject*> written_types;
  for (const Node& node : provenance_.nodes()) {
    const PyTypeObject* type = Py_TYPE(node.object.get());
    if (node.is_written && std::ranges::find(written_types, type) == written_types.end()) written_types.push_back(type);
  }
  for (const PyTypeObject* type : written_types) {
    std::vector<const Node*> written;
    std::vector<const Node*> read;
    WrittenKeys keys;
    const auto is_of_type = [&](const Node& node) { return Py_TYPE(node.object.get()) == type; };
    for (const Node& node : provenance_.nodes() | std::views::filter(is_of_type)) {
      if (!node.is_written) continue;
      written.push_back(&node);
      keys.add(node);
    }
    for (const Node& node : provenance_.nodes() | std::views::filter(is_of_type)) {
      const bool is_read = node.trace_tensor || (!node.reads.empty() && keys.are_read(node));
      if (!node.is_written && is_read) read.push_back(&node);
    }
    const bool are_constant =
        std::ranges::all_of(written, &Node::is_constant) && std::ranges::all_of(read, &Node::is_constant);
    if (are_constant || written.size() + read.size() == 1) continue;
    DistinctRegisters& group = program_.distinct_.emplace_back();
    group.first_guard = static_cast<std::uint32_t>(program_.infos_.size());
    const std::string expected = std::string("another object of type ") + type->tp_name + " than those read elsewhere";
    for (const Node* node : written) {
      group.written.push_back(register_of(*node));
      program_.infos_.add({expression(*node), expected, {}});
    }
    for (const Node* node : read) group.read.push_back(register_of(*node));
  }
}

void GuardCompiler::emit_node(const Node& node) {
  for (const Read& read : node.reads) {
    if (hook_tables_.empty() || !emit_hook_read(node, read)) emit_read(node, read);
  }
  for (const Node* part : parts_[&node]) {
    if (part->accessor == Accessor::kInstanceDict) {
      if (part->reads.empty() && !part->needed) continue;
      emit_instance_dict(node, *part);
    }
    emit_node(*part);
  }
}

GuardProgram GuardCompiler::compile(std::size_t positional, py::Borrowed names) {
  program_.positional_ = positional;
  program_.names_ = py::Ref::share(names);
  program_.infos_.add({"the call", describe_call(positional, names), {}});
  scratch_register_ = static_cast<std::uint32_t>(provenance_.nodes().size());
  for (const Node& node : provenance_.nodes()) {
    if (node.parent != nullptr) parts_[node.parent].push_back(&node);
  }
  find_hook_tables();
  emit_node(provenance_.call());
  for (const Node& node : provenance_.nodes()) {
    if (!node.is_constant()) continue;
    const auto begin = program_.instructions_.size();
    if (node.trace_tensor) {
      emit_object(node, program_.infos_.add({expression(node), hooks_.describe(node.object.get()), {}}));
    } else if (is_reclassifiable(node) &&
               (node.class_is_read || !node.reads.empty() || node.instance_dict != nullptr)) {
      const std::string type = Py_TYPE(node.object.get())->tp_name;
      emit_object(node, program_.infos_.add({"type(" + expression(node) + ")", type, {}}));
    }
    emit_node(node);
    if (program_.instructions_.size() == begin && !node.needed && !node.is_written) continue;
    program_.constant_registers_.emplace_back(register_of(node), keep(node.object.get()));
  }
  program_.instructions_.insert(program_.instructions_.end(), same_checks_.begin(), same_checks_.end());
  emit_distinct_objects();
  program_.register_count_ = scratch_register_ + 1;
  program_.infos_.finish();
  program_.instructions_.shrink_to_fit();
  program_.kept_.shrink_to_fit();
  return std::move(program_);
}

}  // namespace thunder::interpreter
