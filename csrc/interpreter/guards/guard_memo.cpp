#include "interpreter/guards/guard_memo.h"

#include <algorithm>

namespace thunder::interpreter {
namespace {

/// Collections run finalizers, which may change what is being looked at.
class CollectionPause {
 public:
  CollectionPause() : was_enabled_(PyGC_Disable()) {}
  ~CollectionPause() {
    if (was_enabled_ != 0) PyGC_Enable();
  }
  CollectionPause(const CollectionPause&) = delete;
  CollectionPause& operator=(const CollectionPause&) = delete;

 private:
  int was_enabled_;
};

/// A model's parameters lie all over memory. So many checks are about as long as it takes to fetch one.
constexpr std::size_t kPrefetched = 6;
void prefetch(const TensorMemory& memory) {
  for (const void* address : memory) __builtin_prefetch(address);
}

/// Whether a part's object may be another one: no word is about the old one.
bool is_replaceable(const GuardNode& node) {
  return node.parts.empty() && std::ranges::all_of(node.checks, [](const GuardStep& check) {
           return check.op == GuardOp::kPresent || check.op == GuardOp::kAbsent || check.op == GuardOp::kIs ||
                  check.op == GuardOp::kEqual || check.op == GuardOp::kTensor;
         });
}

}  // namespace

bool GuardMemo::is_worthwhile(const GuardNode& node, PyObject* value) {
  constexpr std::uint32_t kFewSteps = 16;
  return value != nullptr && node.below.size() > kFewSteps && (Py_TYPE(value)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0;
}

bool GuardMemo::look_again(const GuardGraph& graph, std::size_t word, GuardRun& run) {
  const std::uint32_t index = contents_.origins[word].node;
  if (index == 0) return false;
  const GuardNode& node = graph.nodes[index];
  PyObject* const dict = run.registers[index];
  Candidates accepted = ~Candidates{0};
  for (const GuardStep& step : node.checks) {
    if (step.op != GuardOp::kTensor && !check_value(step.op, dict, step.number, step.object))
      accepted &= ~step.needed_by;
  }
  for (std::uint32_t i = node.inner.begin; i < node.inner.end; ++i) {
    const GuardStep& step = graph.steps[i];
    if (step.op == GuardOp::kTensor) continue;
    PyObject*& place = run.registers[step.node];
    if (is_load(step.op)) {
      // Words may be about a part that was looked at for a specialization that something else excluded later: they are
      // read only while the part is the same object.
      const bool is_needed = (step.needed_by & (contents_.verdict | contents_.origins[word].excluded)) != 0;
      if (!is_needed && place == nullptr) continue;
      PyObject* value = load_part(step.op, dict, step.number, step.object, run.scratch);
      if (value != place && !is_replaceable(graph.nodes[step.node])) return false;
      place = value;
    } else if ((step.needed_by & (contents_.verdict | contents_.origins[word].excluded)) != 0 &&
               !check_value(step.op, place, step.number, step.object)) {
      accepted &= ~step.needed_by;
    }
  }
  if ((accepted & contents_.verdict) != contents_.verdict || (accepted & contents_.origins[word].excluded) != 0)
    return false;
  contents_.words[word].expected = *contents_.words[word].address;
  return true;
}

bool GuardMemo::holds(const GuardGraph& graph, GuardRun& run) {
  for (const MemoContents::TypeVersion& known : contents_.types) {
    if (version_of_type(known.type) != known.version) return false;
  }
  const std::size_t count = contents_.words.size();
  const MemoContents::Word* const words = contents_.words.data();
  for (std::size_t i = 0; i < count; ++i) {
    if (*words[i].address != words[i].expected && !look_again(graph, i, run)) return false;
  }
  return true;
}

Candidates GuardMemo::run(const GuardGraph& graph, std::span<const std::uint32_t> roots, PyObject* subject,
                          StepRange steps, const TensorCheck& check, Candidates candidates, GuardRun& run) {
  constexpr std::uint32_t kOften = 4;
  constexpr std::uint32_t kRetry = 16;
  const bool is_known = is_valid_ && subject == subject_;
  if (is_known && holds(graph, run)) {
    failures_ = 0;
  } else {
    ++full_passes_;
    is_valid_ = false;
    // An object that comes once, or what changes at each call, is not worth a memo.
    const bool is_new = subject != subject_;
    subject_ = subject;
    if (is_new || (++failures_ > kOften && failures_ % kRetry != 0))
      return graph.execute(steps, check, candidates, run);
    const CollectionPause pause;
    contents_ = MemoBuilder(graph, run).build(roots, subject);
    for (const GuardStep& step : contents_.tensors) contents_.memory.push_back(check.memory(run.registers[step.node]));
    is_valid_ = true;
  }
  candidates &= contents_.verdict;
  const std::size_t count = contents_.tensors.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kPrefetched < count) prefetch(contents_.memory[i + kPrefetched]);
    const GuardStep& step = contents_.tensors[i];
    if ((step.needed_by & candidates) == 0) continue;
    PyObject* value = run.registers[step.node];
    const bool holds = value != nullptr && reinterpret_cast<PyObject*>(Py_TYPE(value)) == step.object &&
                       check.matches(check.guards, static_cast<std::size_t>(step.number), value);
    if (!holds) candidates &= ~step.needed_by;
    if (candidates == 0) return 0;
  }
  for (const StepRange& range : contents_.postponed) candidates = graph.execute(range, check, candidates, run);
  return candidates;
}

int GuardMemo::visit(visitproc visitor, void* argument) const {
  for (const py::Ref& object : contents_.pins) {
    if (const int status = visitor(object.get(), argument); status != 0) return status;
  }
  return 0;
}

}  // namespace thunder::interpreter
