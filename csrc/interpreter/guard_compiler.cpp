#include "interpreter/guard_compiler.h"

#include <algorithm>
#include <utility>

namespace thunder::interpreter {
namespace {

bool is_fact(Accessor accessor) {
  return accessor == Accessor::kLength || accessor == Accessor::kTruth || accessor == Accessor::kKeys ||
         accessor == Accessor::kMembers;
}

bool has_block(const Node& node) {
  if (!node.object) return false;
  return PyDict_Check(node.object.get()) || PyType_Check(node.object.get());
}

std::string describe_expectation(const Read& read) {
  switch (read.expectation) {
    case Expectation::kIdentity:
    case Expectation::kEquality:
      return describe(read.value.get());
    case Expectation::kAbsent:
      return "absent";
    case Expectation::kObject:
      return std::string("an object of type ") + Py_TYPE(read.value.get())->tp_name;
    case Expectation::kSame:
      return "the same object as " + expression(*read.part);
  }
  return {};
}

GuardOp load_of(Accessor accessor) {
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
    case Accessor::kConstant:
    case Accessor::kInstanceDict:
    case Accessor::kTypeAttribute:
    case Accessor::kLength:
    case Accessor::kTruth:
    case Accessor::kKeys:
    case Accessor::kMembers:
      break;
  }
  return GuardOp::kLoadDict;
}

}  // namespace

GuardInstruction& GuardCompiler::emit(GuardOp op, std::uint32_t target, std::uint32_t source, std::uint32_t guard) {
  return program_.instructions_.emplace_back(GuardInstruction{op, target, source, guard, 0, nullptr, nullptr});
}

PyObject* GuardCompiler::keep(py::Borrowed object) {
  if (object != nullptr) program_.constants_.push_back(py::Ref::share(object));
  return object;
}

std::uint32_t GuardCompiler::add_info(const Node& owner, const Read& read) {
  std::string path = read.part != nullptr && read.expectation == Expectation::kObject ? expression(*read.part)
                                                                                      : expression(owner, read);
  program_.infos_.push_back({std::move(path), describe_expectation(read), read.location});
  return static_cast<std::uint32_t>(program_.infos_.size() - 1);
}

std::uint32_t GuardCompiler::register_for(const Read& read) {
  if (read.expectation == Expectation::kObject) return register_of(*read.part);
  return read.expectation == Expectation::kSame ? ++scratch_register_ : 0;
}

void GuardCompiler::emit_fact(const Node& owner, const Read& read) {
  const std::uint32_t guard = add_info(owner, read);
  const std::uint32_t source = register_of(owner);
  PyObject* value = read.value.get();
  if (read.accessor == Accessor::kLength) {
    emit(GuardOp::kLength, 0, source, guard).number = PyLong_AsSsize_t(value);
  } else if (read.accessor == Accessor::kTruth) {
    emit(GuardOp::kTruth, 0, source, guard).number = value == Py_True;
  } else {
    emit(read.accessor == Accessor::kKeys ? GuardOp::kKeys : GuardOp::kMembers, 0, source, guard).object = keep(value);
  }
}

void GuardCompiler::emit_expectation(const Read& read, std::uint32_t loaded) {
  const std::uint32_t guard = static_cast<std::uint32_t>(program_.infos_.size() - 1);
  if (read.expectation == Expectation::kIdentity) {
    emit(GuardOp::kIs, 0, loaded, guard).object = keep(read.value.get());
  } else if (read.expectation == Expectation::kEquality) {
    emit(GuardOp::kEqual, 0, loaded, guard).object = keep(read.value.get());
  } else if (read.expectation == Expectation::kSame) {
    same_checks_.push_back({GuardOp::kSame, register_of(*read.part), loaded, guard, 0, nullptr, nullptr});
  }
}

void GuardCompiler::emit_read(const Node& owner, const Read& read) {
  if (is_fact(read.accessor)) return emit_fact(owner, read);
  const std::uint32_t guard = add_info(owner, read);
  const std::uint32_t source = register_of(owner);
  const bool is_absent = read.expectation == Expectation::kAbsent;
  if (read.accessor == Accessor::kTypeAttribute) {
    GuardInstruction& check = emit(GuardOp::kTypeAttribute, 0, source, guard);
    check.object = keep(read.key.get());
    check.expected = is_absent ? nullptr : keep(read.value.get());
    return;
  }
  if (read.accessor == Accessor::kDictItem && is_absent) {
    emit(GuardOp::kDictAbsent, 0, source, guard).object = keep(read.key.get());
    return;
  }
  const std::uint32_t loaded = register_for(read);
  GuardInstruction& load = emit(load_of(read.accessor), loaded, source, guard);
  load.object = keep(read.key.get());
  const bool may_be_absent = read.accessor == Accessor::kCell || read.accessor == Accessor::kDescriptor;
  load.number = may_be_absent ? is_absent : read.index;
  if (read.accessor == Accessor::kKeyword) {
    load.number = PySequence_Index(program_.names_.get(), read.key.get());
  }
  emit_expectation(read, loaded);
}

void GuardCompiler::emit_object(const Node& part, std::uint32_t guard) {
  const std::uint32_t loaded = register_of(part);
  PyObject* object = part.object.get();
  emit(GuardOp::kType, 0, loaded, guard).object = keep(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  if (part.stand_in)
    emit(GuardOp::kTensor, 0, loaded, guard).number = static_cast<std::int64_t>(hooks_.input_index(object));
}

void GuardCompiler::emit_node(const Node& node) {
  const bool is_block = has_block(node) && !node.reads.empty();
  const bool is_dict = is_block && PyDict_Check(node.object.get());
  const std::size_t begin = program_.instructions_.size();
  const std::uint32_t version = version_count_;
  if (is_block) {
    ++version_count_;
    emit(is_dict ? GuardOp::kBeginDict : GuardOp::kBeginType, version, register_of(node), 0);
  }
  std::vector<std::pair<const Node*, std::uint32_t>> objects;
  for (const Read& read : node.reads) {
    emit_read(node, read);
    if (read.expectation == Expectation::kObject) {
      objects.emplace_back(read.part, static_cast<std::uint32_t>(program_.infos_.size() - 1));
    }
  }
  if (is_block) {
    program_.instructions_[begin].number = static_cast<std::int64_t>(program_.instructions_.size());
    emit(is_dict ? GuardOp::kEndDict : GuardOp::kEndType, version, register_of(node), 0);
  }
  for (const auto& [part, guard] : objects) emit_object(*part, guard);
  for (const Node* part : parts_[&node]) {
    if (part->accessor == Accessor::kInstanceDict) {
      if (part->reads.empty() && !part->needed) continue;
      program_.infos_.push_back({expression(*part), "a dict", {}});
      emit(GuardOp::kLoadDict, register_of(*part), register_of(node),
           static_cast<std::uint32_t>(program_.infos_.size() - 1));
    }
    emit_node(*part);
  }
}

GuardProgram GuardCompiler::compile(std::size_t positional, py::Borrowed names) {
  program_.positional_ = positional;
  program_.names_ = py::Ref::share(names);
  program_.infos_.push_back(
      {"the call",
       std::to_string(positional) + " positional arguments and keywords " + (names == nullptr ? "()" : describe(names)),
       {}});
  scratch_register_ = static_cast<std::uint32_t>(provenance_.nodes().size());
  for (const Node& node : provenance_.nodes()) {
    if (node.parent != nullptr) parts_[node.parent].push_back(&node);
  }
  emit_node(provenance_.call());
  for (const Node& node : provenance_.nodes()) {
    if (!node.is_constant()) continue;
    if (node.stand_in) emit_object(node, 0);
    emit_node(node);
  }
  program_.instructions_.insert(program_.instructions_.end(), same_checks_.begin(), same_checks_.end());
  emit(GuardOp::kAccept, 0, 0, 0);

  program_.registers_ = std::make_unique<PyObject*[]>(scratch_register_ + 1);
  program_.versions_ = std::make_unique<std::uint64_t[]>(version_count_ + 1);
  for (const Node& node : provenance_.nodes()) {
    if (!node.is_constant()) continue;
    program_.registers_[register_of(node)] = keep(node.object.get());
    program_.constant_registers_.push_back(register_of(node));
  }
  return std::move(program_);
}

}  // namespace thunder::interpreter
