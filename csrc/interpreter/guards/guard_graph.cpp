#include "interpreter/guards/guard_graph.h"

namespace thunder::interpreter {

Candidates GuardGraph::execute(StepRange range, const TensorCheck& check, Candidates candidates, GuardRun& run) const {
  PyObject** const registers = run.registers;
  for (std::uint32_t i = range.begin; i < range.end && candidates != 0; ++i) {
    const GuardStep& step = steps[i];
    if ((step.needed_by & candidates) == 0) continue;
    PyObject* value = registers[step.node];
    if (is_load(step.op)) {
      PyObject* owner = registers[step.source];
      registers[step.node] =
          owner == nullptr ? nullptr : load_part(step.op, owner, step.number, step.object, run.scratch);
    } else if (step.op == GuardOp::kTensor) {
      const bool holds = value != nullptr && reinterpret_cast<PyObject*>(Py_TYPE(value)) == step.object &&
                         check.matches(check.guards, static_cast<std::size_t>(step.number), value);
      if (!holds) candidates &= ~step.needed_by;
    } else if (!check_value(step.op, value, step.number, step.object)) {
      candidates &= ~step.needed_by;
    }
  }
  return candidates;
}

}  // namespace thunder::interpreter
