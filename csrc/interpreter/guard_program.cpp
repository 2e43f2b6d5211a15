#include "interpreter/guard_program.h"

#include <algorithm>

#include "interpreter/deque.h"
#include "interpreter/opaque_state.h"
#include "interpreter/provenance_constant.h"

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
  if (check.op == GuardOp::kContains) return check.number != 0 ? "False" : "True";
  if (check.op == GuardOp::kKeys || check.op == GuardOp::kMembers) {
    const py::Ref list = py::Ref::steal(check.op == GuardOp::kKeys ? PySequence_Tuple(value) : PyFrozenSet_New(value));
    if (!list) PyErr_Clear();
    return describe(list.get());
  }
  if (check.op == GuardOp::kNotSame) return "True";
  if (check.op == GuardOp::kState) {
    const py::Ref state = state_of(value, static_cast<StateKind>(check.number));
    if (state) return describe_state(value, state.get());
    PyErr_Clear();
  }
  return check.op == GuardOp::kSame ? "another object" : describe(value);
}

}  // namespace

std::vector<GuardFailure> GuardProgram::failures(const CallArguments& call, const TensorCheck& check) const {
  const Py_ssize_t name_count = call.names == nullptr ? 0 : PyTuple_GET_SIZE(call.names);
  const Py_ssize_t expected_names = names_ ? PyTuple_GET_SIZE(names_.get()) : 0;
  if (call.positional != positional_ || name_count != expected_names ||
      (name_count > 0 && !equal_constants(names_.get(), call.names))) {
    return {{0, describe_call(call.positional, call.names)}};
  }
  std::vector<GuardFailure> result;
  std::vector<PyObject*> registers(register_count_);
  std::vector<bool> failed(register_count_);
  for (const auto& [index, object] : constant_registers_) registers[index] = object;
  GuardScratch scratch;
  for (const GuardInstruction& step : instructions_) {
    PyObject* value = registers[step.source];
    if (step.op == GuardOp::kLoadArgument || step.op == GuardOp::kLoadKeyword) {
      const auto index = static_cast<std::size_t>(step.number);
      registers[step.target] = call.values[step.op == GuardOp::kLoadKeyword ? call.positional + index : index];
    } else if (is_load(step.op)) {
      failed[step.target] = failed[step.source] || value == nullptr;
      if (!failed[step.target]) {
        registers[step.target] = load_part(step.op, value, step.number, step.object, scratch);
      }
    } else if (!failed[step.source]) {
      bool holds;
      if (is_relation(step.op)) {
        const bool is_same = value == registers[step.target];
        holds = failed[step.target] || is_same == (step.op == GuardOp::kSame);
      } else if (step.op == GuardOp::kTensor) {
        holds = value != nullptr && reinterpret_cast<PyObject*>(Py_TYPE(value)) == step.object &&
                check.matches(check.guards, static_cast<std::size_t>(step.number), value);
      } else {
        holds = check_value(step.op, value, step.number, step.object);
      }
      if (holds) continue;
      failed[step.source] = step.op == GuardOp::kType || value == nullptr;
      result.push_back({step.guard, describe_found(step, value, check)});
    }
  }
  return result;
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
