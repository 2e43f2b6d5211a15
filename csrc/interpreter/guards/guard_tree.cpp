#include "interpreter/guards/guard_tree.h"

#include <algorithm>
#include <utility>

#include "interpreter/guards/guard_memo.h"
#include "interpreter/provenance/provenance_constant.h"

namespace thunder::interpreter {
namespace {

constexpr std::uint32_t kCall = 0;

std::uint32_t count(const std::vector<GuardStep>& steps) { return static_cast<std::uint32_t>(steps.size()); }

bool has_strings_only(PyObject* tuple) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(tuple, i))) return false;
  }
  return true;
}

bool is_same_check(const GuardStep& left, const GuardStep& right) {
  if (left.op != right.op || left.number != right.number || left.source != right.source) return false;
  if (left.object == right.object) return true;
  if (left.op == GuardOp::kKeys && !has_strings_only(left.object)) return false;
  return (left.op == GuardOp::kEqual || left.op == GuardOp::kKeys) && equal_constants(left.object, right.object);
}

}  // namespace

GuardTree::GuardTree() : strings_(py::Ref::steal(PyDict_New())), memo_(std::make_unique<GuardMemo>()) {
  graph_.nodes.emplace_back();
}

GuardTree::~GuardTree() = default;

std::size_t GuardTree::KeyHash::operator()(const Key& key) const {
  std::size_t hash = (reinterpret_cast<std::uintptr_t>(key.object) >> 4) * 0x9E3779B97F4A7C15ULL;
  hash ^= (key.parent * 64ULL + static_cast<std::size_t>(key.op)) * 0xC2B2AE3D27D4EB4FULL;
  return (hash ^ (hash >> 29)) + static_cast<std::size_t>(key.number) * 31;
}

PyObject* GuardTree::keep(PyObject* object) {
  if (object == nullptr) return nullptr;
  if (PyUnicode_CheckExact(object)) {
    PyObject* known = PyDict_SetDefault(strings_.get(), object, object);
    if (known != nullptr) return known;
    PyErr_Clear();
  }
  kept_.push_back(py::Ref::share(object));
  return object;
}

std::uint32_t GuardTree::node_for(const Key& key, bool is_constant) {
  const auto [place, is_new] = nodes_by_key_.try_emplace(key, static_cast<std::uint32_t>(graph_.nodes.size()));
  if (!is_new) return place->second;
  GuardNode& node = graph_.nodes.emplace_back();
  node.load = {key.op, place->second, key.parent, key.number, const_cast<PyObject*>(key.object), 0};
  node.is_constant = is_constant;
  if (is_constant) {
    constants_.push_back(place->second);
  } else {
    graph_.nodes[key.parent].parts.push_back(place->second);
  }
  return place->second;
}

std::uint32_t GuardTree::constant_node(PyObject* object) {
  kept_.push_back(py::Ref::share(object));
  return node_for({kCall, GuardOp::kIs, 0, object}, true);
}

void GuardTree::add_check(std::uint32_t node, GuardStep check, Candidates bit) {
  check.node = node;
  std::vector<GuardStep>& checks = is_relation(check.op) ? same_ : graph_.nodes[node].checks;
  for (GuardStep& known : checks) {
    if (known.node != node || !is_same_check(known, check)) continue;
    known.needed_by |= bit;
    return;
  }
  check.needed_by = bit;
  checks.push_back(check);
}

void GuardTree::add_distinct(const DistinctRegisters& registers, const std::vector<std::uint32_t>& nodes,
                             Candidates bit) {
  const auto to_nodes = [&](const std::vector<std::uint32_t>& indices) {
    std::vector<std::uint32_t> found;
    for (const std::uint32_t index : indices) found.push_back(nodes[index]);
    return found;
  };
  DistinctObjects objects(to_nodes(registers.written), to_nodes(registers.read), bit);
  const auto is_known = [&](const DistinctObjects& other) { return other.is_about_same(objects); };
  const auto known = std::ranges::find_if(distinct_, is_known);
  if (known != distinct_.end()) {
    known->needed_by |= bit;
  } else {
    distinct_.push_back(std::move(objects));
  }
}

void GuardTree::add_signature(const GuardProgram& program, Candidates bit) {
  PyObject* names = program.keyword_names();
  for (Signature& known : signatures_) {
    if (known.positional != program.positional() || (names == nullptr) != !known.names) continue;
    if (names != nullptr && !equal_constants(names, known.names.get())) continue;
    known.accepted_by |= bit;
    return;
  }
  signatures_.push_back({program.positional(), py::Ref::share(names), bit});
}

std::size_t GuardTree::add(const GuardProgram& program, std::span<const std::uint32_t> tensor_guards) {
  const std::size_t index = specializations_.size();
  const Candidates bit = Candidates{1} << index;
  Specialization& added = specializations_.emplace_back();
  added.nodes.resize(program.register_count(), kCall);
  added.inputs.resize(tensor_guards.size(), kCall);
  add_signature(program, bit);
  for (const auto& [place, object] : program.constants()) added.nodes[place] = constant_node(object);
  for (const GuardInstruction& instruction : program.instructions()) {
    if (is_load(instruction.op)) {
      const std::uint32_t parent = added.nodes[instruction.source];
      const std::uint32_t node =
          node_for({parent, instruction.op, instruction.number, keep(instruction.object)}, false);
      added.nodes[instruction.target] = node;
      graph_.nodes[node].load.needed_by |= bit;
      continue;
    }
    GuardStep check{instruction.op, 0, 0, instruction.number, instruction.object, 0};
    if (check.op == GuardOp::kEqual) {
      check.object = keep(check.object);
    } else if (check.object != nullptr) {
      kept_.push_back(py::Ref::share(check.object));  // the object itself, not an equal one
    }
    const std::uint32_t node = added.nodes[instruction.source];
    if (is_relation(instruction.op)) check.source = added.nodes[instruction.target];
    if (instruction.op == GuardOp::kTensor) {
      const auto input = static_cast<std::size_t>(instruction.number);
      added.inputs[input] = node;
      check.number = tensor_guards[input];
    }
    add_check(node, check, bit);
  }
  for (const DistinctRegisters& registers : program.distinct()) add_distinct(registers, added.nodes, bit);
  linearize();
  return index;
}

void GuardTree::emit_own(GuardNode& node) {
  node.own.begin = count(graph_.steps);
  if (!node.is_constant) graph_.steps.push_back(node.load);
  graph_.steps.insert(graph_.steps.end(), node.checks.begin(), node.checks.end());
  node.own.end = count(graph_.steps);
}

void GuardTree::emit_below(GuardNode& node) {
  node.inner.begin = node.below.begin = count(graph_.steps);
  for (const std::uint32_t part : node.parts) emit_own(graph_.nodes[part]);
  node.inner.end = count(graph_.steps);
  for (const std::uint32_t part : node.parts) emit_below(graph_.nodes[part]);
  node.below.end = count(graph_.steps);
}

void GuardTree::linearize() {
  graph_.steps.clear();
  emit_below(graph_.nodes[kCall]);
  below_constants_.begin = count(graph_.steps);
  for (const std::uint32_t constant : constants_) {
    emit_own(graph_.nodes[constant]);
    emit_below(graph_.nodes[constant]);
  }
  below_constants_.end = count(graph_.steps);
  registers_ = std::make_unique<PyObject*[]>(graph_.nodes.size());
  for (const std::uint32_t constant : constants_) registers_[constant] = graph_.nodes[constant].load.object;
  memo_->forget();
  argument_memos_.clear();
}

Candidates GuardTree::accepted_signature(const CallArguments& call) const {
  const Py_ssize_t name_count = call.names == nullptr ? 0 : PyTuple_GET_SIZE(call.names);
  for (const Signature& signature : signatures_) {
    const Py_ssize_t expected = signature.names ? PyTuple_GET_SIZE(signature.names.get()) : 0;
    if (call.positional != signature.positional || name_count != expected) continue;
    if (name_count == 0 || equal_constants(signature.names.get(), call.names)) return signature.accepted_by;
  }
  return 0;
}

Candidates GuardTree::run_arguments(const CallArguments& call, const TensorCheck& check, Candidates candidates,
                                    GuardRun& run, bool nested) {
  const GuardNode& root = graph_.nodes[kCall];
  for (const std::uint32_t part : root.parts) {
    const GuardNode& node = graph_.nodes[part];
    if ((node.load.needed_by & candidates) == 0) continue;
    const auto index = static_cast<std::size_t>(node.load.number);
    const bool is_named = node.load.op == GuardOp::kLoadKeyword;
    run.registers[part] = call.values[is_named ? call.positional + index : index];
    candidates = graph_.execute({node.own.begin + 1, node.own.end}, check, candidates, run);
  }
  for (const std::uint32_t part : root.parts) {
    const GuardNode& node = graph_.nodes[part];
    if (node.below.size() == 0 || (node.load.needed_by & candidates) == 0) continue;
    PyObject* value = run.registers[part];
    if (!nested && GuardMemo::is_worthwhile(node, value)) {
      candidates = argument_memo(part).run(graph_, {&part, 1}, value, node.below, check, candidates, run);
      continue;
    }
    // A memo is about what it left in the registers, which are filled anew here.
    if (!nested && !argument_memos_.empty()) argument_memo(part).forget();
    candidates = graph_.execute(node.below, check, candidates, run);
  }
  return candidates;
}

Candidates GuardTree::check_relations(Candidates candidates, const GuardRun& run) {
  for (const GuardStep& step : same_) {
    const bool is_same = run.registers[step.node] == run.registers[step.source];
    if (is_same != (step.op == GuardOp::kSame)) candidates &= ~step.needed_by;
  }
  for (DistinctObjects& objects : distinct_) {
    if ((objects.needed_by & candidates) != 0 && !objects.holds(run.registers)) candidates &= ~objects.needed_by;
  }
  return candidates;
}

GuardMemo& GuardTree::argument_memo(std::uint32_t node) {
  std::unique_ptr<GuardMemo>& memo = argument_memos_[node];
  if (!memo) memo = std::make_unique<GuardMemo>();
  return *memo;
}

Candidates GuardTree::run(const CallArguments& call, const TensorCheck& check, Candidates candidates, GuardRun& run) {
  candidates &= accepted_signature(call);
  if (candidates == 0) return 0;
  // Code that guards make run (a getter written in C, a finalizer) may call the same function again.
  const bool nested = std::exchange(busy_, true);
  run.registers = registers_.get();
  if (nested) {
    run.own = std::make_unique<PyObject*[]>(graph_.nodes.size());
    run.registers = run.own.get();
    for (const std::uint32_t constant : constants_) run.registers[constant] = graph_.nodes[constant].load.object;
  }
  candidates = run_arguments(call, check, candidates, run, nested);
  if (candidates != 0) {
    candidates = nested ? graph_.execute(below_constants_, check, candidates, run)
                        : memo_->run(graph_, constants_, nullptr, below_constants_, check, candidates, run);
  }
  if (candidates != 0) candidates = check_relations(candidates, run);
  busy_ = nested;
  return candidates;
}

Candidates GuardTree::run_arguments_only(const CallArguments& call, const TensorCheck& check, Candidates candidates,
                                         GuardRun& run) {
  if (frozen_.empty()) {
    candidates = this->run(call, check, candidates, run);
    for (std::uint32_t node = 0; candidates != 0 && node < graph_.nodes.size(); ++node) {
      frozen_.push_back(py::Ref::share(run.registers[node]));
    }
    return candidates;
  }
  run.own = std::make_unique<PyObject*[]>(graph_.nodes.size());
  run.registers = run.own.get();
  for (std::uint32_t node = 0; node < graph_.nodes.size(); ++node) run.registers[node] = frozen_[node].get();
  candidates &= accepted_signature(call);
  if (candidates != 0) candidates = run_arguments(call, check, candidates, run, true);
  return candidates;
}

void GuardTree::inputs(const GuardRun& run, std::size_t specialization, PyObject** tensors) const {
  for (const std::uint32_t node : specializations_[specialization].inputs) *tensors++ = run.registers[node];
}

std::size_t GuardTree::check_count() const {
  std::size_t result = signatures_.size() + same_.size();
  for (const DistinctObjects& objects : distinct_) result += objects.size();
  for (const GuardNode& node : graph_.nodes) result += node.checks.size();
  return result;
}

std::uint64_t GuardTree::full_passes() const { return memo_->full_passes(); }

int GuardTree::visit(visitproc visitor, void* argument) const {
  for (const py::Ref& object : kept_) {
    if (const int status = visitor(object.get(), argument); status != 0) return status;
  }
  for (const py::Ref& object : frozen_) {
    if (!object) continue;
    if (const int status = visitor(object.get(), argument); status != 0) return status;
  }
  return memo_->visit(visitor, argument);
}

}  // namespace thunder::interpreter
