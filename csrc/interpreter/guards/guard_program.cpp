#include "interpreter/python/cpython_compat.h"

#include "interpreter/guards/guard_program.h"

#include <algorithm>
#include <unordered_map>

#include "interpreter/guards/weak_keys.h"
#include "interpreter/provenance/containers.h"
#include "interpreter/provenance/opaque_state.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/deque.h"
#include "interpreter/python/object_parts.h"

namespace thunder::interpreter {
namespace {

std::string describe_found(const GuardInstruction& check, py::Borrowed value, const TensorCheck& tensors) {
  if (value == nullptr) return "nothing";
  const bool is_tensor_guard = check.op == GuardOp::kTensor;
  if (is_tensor_guard && reinterpret_cast<PyObject*>(Py_TYPE(value)) == check.object) return tensors.describe(value);
  const bool is_plain = value == Py_None || PyLong_Check(value) || PyFloat_Check(value) || PyUnicode_Check(value);
  if ((check.op == GuardOp::kType || is_tensor_guard) && is_plain) return describe(value);
  if (check.op == GuardOp::kType || is_tensor_guard) return std::string("an object of type ") + Py_TYPE(value)->tp_name;
  if (check.op == GuardOp::kLength) return std::to_string(length_of(value));
  if (check.op == GuardOp::kTruth) return length_of(value) != 0 ? "True" : "False";
  if (check.op == GuardOp::kContains) return (check.number & 1) != 0 ? "False" : "True";
  if (check.op == GuardOp::kKeys || check.op == GuardOp::kMembers) {
    const bool is_dict = check.op == GuardOp::kKeys && PyDict_Check(value);
    const bool is_set = check.op == GuardOp::kMembers && PyAnySet_Check(value);
    const py::Ref list = is_dict ? keys_of(value) : is_set ? members_of(value) : py::Ref::share(value);
    if (!list) PyErr_Clear();
    return describe(list.get());
  }
  if (check.op == GuardOp::kNotSame) return "True";
  const bool is_memo = check.op == GuardOp::kState && static_cast<StateKind>(check.number) == StateKind::kMemo;
  if (is_memo) return describe(value) + ", which keeps it no more";
  if (check.op == GuardOp::kState) {
    const auto kind = static_cast<StateKind>(check.number);
    const py::Ref state = state_of(value, kind);
    if (state) return describe_state(value, kind, state.get());
    PyErr_Clear();
  }
  return check.op == GuardOp::kSame ? "another object" : describe(value);
}

/// The text for a value that reads like the expected one, changed so that the two can be told apart.
std::string tell_apart(const GuardInstruction& check, py::Borrowed value, std::string text) {
  if (value == nullptr) return text;
  if (check.op == GuardOp::kTensor) return text + ", dispatched in another way";
  if (PyFunction_Check(value)) return "another function " + text;
  return std::string("another object of type ") + Py_TYPE(value)->tp_name;
}

/// Goes through the guards of a program for one call.
class FailureSearch {
 public:
  FailureSearch(const GuardProgram& program, const CallArguments& call, const TensorCheck& tensors)
      : program_(program),
        call_(call),
        tensors_(tensors),
        registers_(program.register_count()),
        failed_(program.register_count()),
        failures_of_(program.register_count(), kNone) {
    for (const auto& [index, object] : program.constants()) registers_[index] = object;
  }

  std::vector<GuardFailure> run() {
    for (const GuardInstruction& step : program_.instructions()) is_load(step.op) ? load(step) : check(step);
    for (const DistinctRegisters& registers : program_.distinct()) check_distinct(registers);
    return std::move(failures_);
  }

  std::vector<std::pair<std::string, py::Ref>> values() {
    std::vector<std::pair<std::string, py::Ref>> found;
    for (const GuardInstruction& step : program_.instructions()) {
      if (is_load(step.op)) {
        load(step);
        continue;
      }
      PyObject* value = registers_[step.source];
      const bool is_int = step.op == GuardOp::kEqual && PyLong_CheckExact(step.object);
      const bool is_asked = is_int || step.op == GuardOp::kTensor;
      if (!is_asked || failed_[step.source] || value == nullptr) continue;
      found.emplace_back(program_.info(step.guard).expression, py::Ref::share(value));
    }
    return found;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void load(const GuardInstruction& step) {
    if (step.op == GuardOp::kLoadArgument || step.op == GuardOp::kLoadKeyword) {
      const auto index = static_cast<std::size_t>(step.number);
      registers_[step.target] = call_.values[step.op == GuardOp::kLoadKeyword ? call_.positional + index : index];
      return;
    }
    PyObject* owner = registers_[step.source];
    failed_[step.target] = failed_[step.source] || owner == nullptr;
    failures_of_[step.target] = failures_of_[step.source];
    if (!failed_[step.target]) {
      registers_[step.target] = load_part(step.op, owner, step.number, step.object, scratch_);
    }
  }

  void check(const GuardInstruction& step) {
    if (failed_[step.source]) {
      if (failures_of_[step.source] != kNone) ++failures_[failures_of_[step.source]].unchecked;
      return;
    }
    PyObject* value = registers_[step.source];
    if (holds(step, value)) return;
    if (step.op == GuardOp::kType || value == nullptr) {
      failed_[step.source] = true;
      failures_of_[step.source] = failures_.size();
    }
    std::string found = describe_found(step, value, tensors_);
    if (found == program_.info(step.guard).expected) found = tell_apart(step, value, std::move(found));
    failures_.push_back({step.guard, std::move(found)});
  }

  void check_distinct(const DistinctRegisters& registers) {
    std::unordered_map<const PyObject*, std::uint32_t> found;
    for (const std::uint32_t index : registers.read) found.emplace(registers_[index], index);
    for (std::size_t i = 0; i < registers.written.size(); ++i) {
      const std::uint32_t index = registers.written[i];
      const auto [same, is_new] = found.emplace(registers_[index], index);
      if (is_new || registers_[index] == nullptr || failed_[index] || failed_[same->second]) continue;
      failures_.push_back(
          {registers.first_guard + static_cast<std::uint32_t>(i), "the same object as " + name_of(same->second)});
    }
  }

  /// The expression of the guard that fills a register.
  [[nodiscard]] std::string name_of(std::uint32_t index) const {
    for (const GuardInstruction& step : program_.instructions()) {
      if (is_load(step.op) && step.target == index) return program_.info(step.guard).expression;
    }
    return "one that the function keeps";
  }

  [[nodiscard]] bool holds(const GuardInstruction& step, py::Borrowed value) const {
    if (is_relation(step.op)) {
      const bool is_same = value == registers_[step.target];
      return failed_[step.target] || is_same == (step.op == GuardOp::kSame);
    }
    if (step.op != GuardOp::kTensor) return check_value(step.op, value, step.number, step.object);
    return value != nullptr && reinterpret_cast<PyObject*>(Py_TYPE(value)) == step.object &&
           tensors_.matches(tensors_.guards, static_cast<std::size_t>(step.number), value);
  }

  const GuardProgram& program_;
  const CallArguments& call_;
  const TensorCheck& tensors_;
  std::vector<PyObject*> registers_;
  std::vector<bool> failed_;              ///< by register: there is nothing to be looked at
  std::vector<std::size_t> failures_of_;  ///< by register: the failure that this comes of
  std::vector<GuardFailure> failures_;
  GuardScratch scratch_;
};

}  // namespace

bool GuardProgram::takes(const CallArguments& call) const {
  const Py_ssize_t name_count = call.names == nullptr ? 0 : PyTuple_GET_SIZE(call.names);
  const Py_ssize_t expected_names = names_ ? PyTuple_GET_SIZE(names_.get()) : 0;
  if (call.positional != positional_ || name_count != expected_names) return false;
  return name_count == 0 || equal_constants(names_.get(), call.names);
}

std::vector<std::pair<std::string, py::Ref>> GuardProgram::values(const CallArguments& call) const {
  return takes(call) ? FailureSearch(*this, call, {}).values() : std::vector<std::pair<std::string, py::Ref>>();
}

std::vector<GuardFailure> GuardProgram::failures(const CallArguments& call, const TensorCheck& check) const {
  if (!takes(call)) {
    const auto others = static_cast<std::uint32_t>(instructions_.size());
    return {{0, describe_call(call.positional, call.names), others}};
  }
  return FailureSearch(*this, call, check).run();
}

bool GuardProgram::is_dead() const {
  return std::ranges::any_of(instructions_, [](const GuardInstruction& step) {
    return is_held_weakly(step.op, step.number) && !strong_key(step.object);
  });
}

int GuardProgram::visit(visitproc visitor, void* argument) const {
  for (const py::Ref& constant : kept_) {
    if (const int result = visitor(constant.get(), argument); result != 0) return result;
  }
  return 0;
}

std::string describe_call(std::size_t positional, py::Borrowed names) {
  std::string text = std::to_string(positional) + (positional == 1 ? " positional argument" : " positional arguments");
  if (names != nullptr && PyTuple_GET_SIZE(names) > 0) text += " and the keywords " + describe(names);
  return text;
}

}  // namespace thunder::interpreter
