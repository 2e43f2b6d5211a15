#include <ATen/record_function.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/timer.h"
#include "compile/execution.h"
#include "dispatch/call/compile_computation.h"
#include "dispatch/call/specialization.h"
#include "dispatch/capture/call_transforms.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/program_capture.h"
#include "dispatch/python/errors.h"
#include "interpreter/loop/signal_handlers.h"
#include "ir/trace_sizes.h"
#include "tracer/data_dependence.h"
#include "tracer/numbers.h"
#include "tracer/trace_session.h"

namespace thunder::dispatch {
namespace {

using Specializations = std::span<const std::shared_ptr<const Specialization>>;

/// The symbols that results are computed of at each call, and the results that are numbers.
void note_results(const ir::Trace& trace, Specialization& specialization) {
  const auto is_size = [](const OutputPlan::Source& source) { return source.size.has_value(); };
  const OutputPlan& plan = specialization.plan;
  if (!plan.views.empty() || std::ranges::any_of(plan.sources, is_size)) {
    specialization.symbols = ir::symbol_sources(trace);
  }
  for (std::size_t i = 0; i < trace.outputs.size(); ++i) {
    const auto* id = trace.outputs[i].get<ir::ValueId>();
    if (id != nullptr && tracer::is_number(trace, *id)) specialization.number_outputs.push_back(i);
  }
}

/// Throws where results are computed of a symbol to which neither an input nor a check gives its value.
void require_symbols_of_results(const ir::Trace& trace, const OutputPlan& plan) {
  std::set<std::uint32_t> known;
  for (const ir::SymbolSource& source : ir::symbol_sources(trace)) known.insert(source.symbol);
  for (const ir::FoundSymbol& found : ir::found_symbols(trace)) known.insert(found.symbol);
  if (std::ranges::all_of(plan.symbols(), [&](std::uint32_t symbol) { return known.contains(symbol); })) return;
  throw UserError(ErrorKind::kNotImplemented, "thunder.jit: a size among the results is needed as a number");
}

/// Records the program and compiles the trace. Null with a Python exception set, also where the program is to be traced
/// again.
std::shared_ptr<const Specialization> make_compiled(ProgramCapture& capture, const Traced& traced,
                                                    Specializations others, const compile::Options& options) {
  const Timer timer;
  const compile::ExecutorScope executors(options.executors);
  std::optional<ir::Trace> trace = capture.record(options);
  if (!trace || !capture.settle_sizes(*trace) || !interpreter::run_waiting_handlers()) return nullptr;
  auto specialization = std::make_shared<Specialization>();
  capture.fill(*specialization);
  specialization->trace_seconds = timer.seconds();
  note_results(*trace, *specialization);
  transform_call(traced, capture.hooks(), options, *trace, *specialization);
  try {
    require_symbols_of_results(*trace, specialization->plan);
    compile_computation(*trace, others, options, *specialization);
  } catch (const std::exception&) {
    if (!capture.sizes().has_symbols()) throw;
    capture.sizes().pin_most();
    ProgramSizes::ask_for_another_attempt();
    return nullptr;
  }
  for (PathSizes::SizeCondition& each : specialization->path.sizes.conditions) {
    each.text = with_names(each.text, capture.sizes().names_of_symbols());
  }
  count_by_guards(specialization->taken, specialization->statistics);
  if (!specialization->has_symbols && specialization->path.empty()) {
    specialization->graph = GraphReplay::make(*specialization->computation, options.cuda_graphs);
    specialization->training_graph = TrainingGraph::make(*specialization->computation, options.cuda_graphs);
  }
  return specialization;
}

/// After a failure, whose exception is set: a specialization for calls that would fail like this one, or null.
std::shared_ptr<const Specialization> make_eager(ProgramCapture& capture) {
  const py::SavedError failure;
  capture.tracker().journal().rollback();
  if (tracer::take_raised_for_data()) return nullptr;
  auto specialization = std::make_shared<Specialization>();
  specialization->runs_eager = true;
  specialization->is_last_resort = std::ranges::any_of(capture.trace().symbols, tracer::looks_at_data);
  try {
    capture.fill(*specialization);
  } catch (...) {
    set_python_error();
  }
  const bool is_filled = PyErr_Occurred() == nullptr;
  PyErr_Clear();
  return is_filled ? specialization : nullptr;
}

/// Whether the pending exception is one of thunder's own of this name.
bool is_pending(std::string_view name) { return name == reinterpret_cast<PyTypeObject*>(PyErr_Occurred())->tp_name; }

/// Tries to make a specialization. Where that fails, the outcome says whether calls like this one may run in eager.
TraceOutcome attempt(ProgramCapture& capture, const Traced& traced, Specializations others,
                     const compile::Options& options) {
  TraceOutcome outcome;
  interpreter::Tracker& tracker = capture.tracker();
  try {
    outcome.made = make_compiled(capture, traced, others, options);
    if (outcome.made != nullptr && !interpreter::run_waiting_handlers()) outcome.made = nullptr;
  } catch (...) {
    set_python_error();
  }
  if (outcome.made != nullptr && !capture.is_interrupted()) return outcome;
  outcome.made = nullptr;
  tracker.leave_objects();
  const bool is_disturbed = tracker.journal().is_disturbed();
  const bool is_kept = !tracker.native_calls().has_fresh_memos() && !is_disturbed;
  tracker.native_calls().forget_memoized();
  if (capture.is_interrupted()) {
    tracker.raise_interruption();
    return outcome;
  }
  outcome.is_disturbed = is_disturbed;
  // Code in C that the program calls may fail without saying how.
  if (PyErr_Occurred() == nullptr)
    PyErr_SetString(PyExc_SystemError, "thunder.jit: a call failed without an exception");
  outcome.location = capture.failed();
  if (!capture.is_recorded()) outcome.definition = capture.definition();
  outcome.context = capture.context();
  // Once the program is recorded, what fails is an executor or transform of the user's, or ours. So does a derivative
  // that eager does not look for before the backward. A ValueError is about an option: the name of a pass.
  const bool is_told = compile::has_extensions(options) || is_pending("ValueError");
  const bool is_extension = capture.is_recorded() && is_told && !is_pending("InternalError");
  // The user's interrupt may reach code in C, which nobody observes.
  const bool is_from_user = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0 && !is_pending_from_statement();
  outcome.may_run_eager = !is_extension && !is_from_user && !is_pending("SharpEdgeError");
  if (outcome.may_run_eager && is_kept) outcome.made = make_eager(capture);
  return outcome;
}

/// Whether a tensor of a trace outlives it, in an object that thunder does not see into. Cycles that the program left
/// keep none.
bool has_escaped(const std::vector<tracer::WeakTensor>& tensors) {
  const auto is_kept = [](const tracer::WeakTensor& tensor) { return !tensor.expired(); };
  if (std::ranges::none_of(tensors, is_kept)) return false;
  static_cast<void>(py::Ref::steal(PyObject_CallNoArgs(loaded_function("gc", "collect").get())));
  return std::ranges::any_of(tensors, is_kept);
}

/// The outcome of a trace whose tensors escaped: calls like this one run in eager, where the object that keeps the
/// tensor gets one with data.
TraceOutcome refuse_escape(TraceOutcome&& outcome) {
  const Specialization& compiled = *outcome.made;
  auto eager = std::make_shared<Specialization>();
  eager->runs_eager = true;
  eager->context = compiled.context;
  eager->state = compiled.state;
  eager->guards = compiled.guards;
  eager->tensors = compiled.tensors;
  outcome.context = compiled.context;
  outcome.made = compiled.checks_values ? nullptr : std::move(eager);
  outcome.may_run_eager = true;
  PyErr_SetString(PyExc_NotImplementedError,
                  "thunder.jit: a computed tensor is kept by an object that is not of Python (in C or C++), which "
                  "compiled code cannot make anew");
  return std::move(outcome);
}

/// Programs that are traced meanwhile find these values (`TraceSession::computed`).
class ComputedScope {
 public:
  explicit ComputedScope(std::span<const at::Tensor> values)
      : previous_(std::exchange(tracer::TraceSession::current().computed, values)) {}
  ~ComputedScope() { tracer::TraceSession::current().computed = previous_; }
  ComputedScope(const ComputedScope&) = delete;
  ComputedScope& operator=(const ComputedScope&) = delete;

 private:
  std::span<const at::Tensor> previous_;
};

/// With symbols; after so many the program is traced for the sizes of the call.
constexpr int kMostAttempts = 12;

TraceOptions without_symbols(TraceOptions how) {
  how.dynamic = DynamicSizes::kNone;
  how.sizes = nullptr;
  return how;
}

}  // namespace

bool is_tracing() { return tracer::TraceSession::current().is_capturing; }

TraceOutcome specialize(const Traced& traced, const interpreter::CallArguments& arguments,
                        std::span<const std::shared_ptr<const Specialization>> others, const compile::Options& options,
                        const TraceOptions& how) {
  // A profiler would read the data of tensors of the trace.
  const at::RecordFunctionGuard unprofiled(/*is_enabled=*/false);
  const ComputedScope computed(how.computed);
  try {
    ProgramCapture::Known known;
    const bool may_have_symbols = can_have_symbols(options, traced.module) && how.sizes != nullptr;
    if (may_have_symbols && !others.empty())
      known.sizes.changing = find_changing(*others.back(), arguments, *how.sizes);
    for (int attempts = 0;; ++attempts) {
      if (attempts == kMostAttempts && how.sizes != nullptr) give_symbols_up(known.sizes.changing, *how.sizes);
      const bool may_be_symbols = attempts < kMostAttempts && !known.has_plain_numbers;
      const auto capture_how = may_be_symbols ? how : without_symbols(how);
      if (!may_be_symbols) known.sizes.changing.clear();
      auto capture = std::make_unique<ProgramCapture>(traced, arguments, capture_how, known);
      TraceOutcome outcome = attempt(*capture, traced, others, options);
      if (capture->is_interrupted()) return outcome;
      const bool failed = PyErr_Occurred() != nullptr;
      ProgramCapture::Known found = capture->known(known, failed);
      if (found == known) {
        if (!failed && how.sizes != nullptr) capture->sizes().remember();
        const std::vector<tracer::WeakTensor> kept = capture->kept_tensors();
        capture.reset();
        return failed || !has_escaped(kept) ? outcome : refuse_escape(std::move(outcome));
      }
      PyErr_Clear();
      known = std::move(found);
    }
  } catch (...) {
    set_python_error();
    return {};
  }
}

}  // namespace thunder::dispatch
