#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "dispatch/capture_policy.h"
#include "dispatch/compiled_function.h"
#include "dispatch/errors.h"
#include "dispatch/source_locator.h"
#include "dispatch/specialization.h"
#include "dispatch/torch_hooks.h"
#include "interpreter/guard_compiler.h"
#include "interpreter/interpret.h"
#include "interpreter/structure_builder.h"
#include "tracer/data_dependence.h"

namespace thunder::dispatch {
namespace {

thread_local bool tracing = false;

/// Marks this thread as tracing; autocast must not hand out casts that belong to another trace, or to none.
class TracingScope {
 public:
  TracingScope() {
    tracing = true;
    at::autocast::clear_cache();
  }
  ~TracingScope() {
    tracing = false;
    at::autocast::clear_cache();
  }
  TracingScope(const TracingScope&) = delete;
  TracingScope& operator=(const TracingScope&) = delete;
};

/// Holds the GIL while alive, whether or not this thread held it before.
class GilHold {
 public:
  GilHold() : state_(PyGILState_Ensure()) {}
  ~GilHold() { PyGILState_Release(state_); }
  GilHold(const GilHold&) = delete;
  GilHold& operator=(const GilHold&) = delete;

 private:
  PyGILState_STATE state_;
};

// How the callable's own signature names its positional arguments, for messages and input names.
std::vector<std::string> parameter_names(PyObject* callable) {
  std::vector<std::string> names;
  py::Ref function = py::Ref::share(callable);
  bool skip_self = false;
  if (!PyFunction_Check(callable)) {
    const char* attribute = PyMethod_Check(callable) ? "__func__" : "forward";
    function = py::Ref::steal(PyObject_GetAttrString(callable, attribute));
    if (function && PyMethod_Check(function.get())) function = py::Ref::share(PyMethod_GET_FUNCTION(function.get()));
    skip_self = true;
    PyErr_Clear();
  }
  if (!function || !PyFunction_Check(function.get())) return names;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.get()));
  const py::Ref variables = py::Ref::steal(PyCode_GetVarnames(code));
  for (int i = skip_self ? 1 : 0; variables && i < code->co_argcount; ++i) {
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(variables.get(), i));
    names.emplace_back(name == nullptr ? "" : name);
  }
  return names;
}

/// While an operation is recorded. PyTorch calls operators without the GIL, recording needs it, and Python code that
/// kernels call to find out about shapes is not part of the program. Notes the user's line when the operation fails.
class RecordingScope {
 public:
  RecordingScope(SourceLocator& locator, ir::SourceLocation& failed)
      : locator_(locator), failed_(failed), exceptions_(std::uncaught_exceptions()) {}
  ~RecordingScope() {
    if (std::uncaught_exceptions() != exceptions_) failed_ = locator_.here();
  }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  GilHold gil_;
  interpreter::NativeScope native_;
  SourceLocator& locator_;
  ir::SourceLocation& failed_;
  int exceptions_;
};

/// One trace in the making.
class Capture {
 public:
  Capture(PyObject* callable, const interpreter::CallArguments& arguments, bool full_graph)
      : callable_(callable),
        arguments_(arguments),
        context_(std::make_shared<ir::TraceContext>()),
        locator_(context_),
        recorder_("computation", context_),
        hooks_(recorder_),
        tracker_(hooks_, make_options()) {
    recorder_.locate = [this] { return locator_.here(); };
    recorder_.full_graph = full_graph;
    recorder_.outside_program = [this] { return std::make_shared<RecordingScope>(locator_, failed_); };
  }

  std::shared_ptr<const Specialization> run(const compile::Options& options);

 private:
  interpreter::TrackerOptions make_options();
  bool admit_arguments();
  py::Ref interpret();
  std::optional<ir::Trace> finish(py::Borrowed result);
  void fill(Specialization& specialization);

  PyObject* callable_;
  const interpreter::CallArguments& arguments_;
  std::shared_ptr<ir::TraceContext> context_;
  SourceLocator locator_;
  tracer::Recorder recorder_;
  TorchHooks hooks_;
  interpreter::Tracker tracker_;
  interpreter::Structure structure_;
  std::vector<std::size_t> written_inputs_;
  ir::SourceLocation failed_;  ///< where the last operation that failed was called
  py::Ref positional_;
  py::Ref keywords_;
};

interpreter::TrackerOptions Capture::make_options() {
  interpreter::TrackerOptions options;
  options.locate = [this] { return locator_.here(); };
  options.treatment = treatment_of;
  options.unwrap = wrapped_callable;
  add_substitutes(options);
  return options;
}

bool Capture::admit_arguments() {
  const bool is_function = PyFunction_Check(callable_);
  tracker_.admit_constant(callable_, is_function ? interpreter::describe(callable_) : "self");
  const std::vector<std::string> names = parameter_names(callable_);
  positional_ = py::Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(arguments_.positional)));
  keywords_ = py::Ref::steal(PyDict_New());
  if (!positional_ || !keywords_) return false;
  for (std::size_t i = 0; i < arguments_.positional; ++i) {
    const auto index = static_cast<Py_ssize_t>(i);
    const std::string name = i < names.size() ? names[i] : "args[" + std::to_string(i) + "]";
    PyObject* seen = tracker_.admit_argument(index, name, arguments_.values[i]);
    if (seen == nullptr) return false;
    PyTuple_SET_ITEM(positional_.get(), index, seen);
  }
  const Py_ssize_t count = arguments_.names == nullptr ? 0 : PyTuple_GET_SIZE(arguments_.names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* name = PyTuple_GET_ITEM(arguments_.names, i);
    PyObject* value = arguments_.values[arguments_.positional + static_cast<std::size_t>(i)];
    const py::Ref seen = py::Ref::steal(tracker_.admit_keyword(name, value));
    if (!seen || PyDict_SetItem(keywords_.get(), name, seen.get()) < 0) return false;
  }
  return true;
}

py::Ref Capture::interpret() {
  const TracingScope scope;
  if (!admit_arguments()) return nullptr;
  const tracer::RecordTop record(recorder_);
  return py::Ref::steal(interpreter::interpret(callable_, positional_.get(), keywords_.get(), &tracker_));
}

std::optional<ir::Trace> Capture::finish(py::Borrowed result) {
  interpreter::StructureBuilder builder(tracker_);
  if (!builder.add_result(result) || !builder.add_effects(tracker_.journal())) return std::nullopt;
  ir::ArgumentList outputs;
  for (const py::Ref& output : builder.outputs()) {
    outputs.emplace_back(recorder_.output_of(THPVariable_Unpack(output.get())));
  }
  structure_ = builder.finish();
  written_inputs_ = recorder_.written_inputs();
  return recorder_.finish(std::move(outputs));
}

void Capture::fill(Specialization& specialization) {
  interpreter::GuardCompiler compiler(tracker_.provenance(), hooks_);
  specialization.guards = compiler.compile(arguments_.positional, arguments_.names);
  for (const py::Ref& input : hooks_.inputs()) specialization.tensors.emplace_back(THPVariable_Unpack(input.get()));
  specialization.structure = std::move(structure_);
  specialization.written_inputs = std::move(written_inputs_);
  for (const interpreter::StructurePart& part : specialization.structure.parts()) {
    if (part.kind == interpreter::PartKind::kInput) specialization.returned_inputs.push_back(part.index);
  }
}

std::shared_ptr<const Specialization> Capture::run(const compile::Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  auto specialization = std::make_shared<Specialization>();
  std::optional<ir::Trace> trace;
  {
    const RestoreThreadState restore;
    specialization->state = restore.state();
    const py::Ref result = interpret();
    if (!result) return add_location(failed_), nullptr;
    specialization->grad_mode_after = c10::GradMode::is_enabled();
    trace = finish(result.get());
    if (!trace) return nullptr;
  }
  tracker_.journal().rollback();
  fill(*specialization);
  specialization->trace_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  constexpr std::size_t kShortProgram = 16;  // operations that run faster than handing the GIL over pays
  specialization->checks_values = std::ranges::any_of(trace->symbols, [](const ir::BoundSymbol& symbol) {
    return symbol.op == tracer::check_number_operator() || symbol.op == tracer::check_shape_operator();
  });
  specialization->releases_gil = trace->symbols.size() > kShortProgram;
  specialization->computation = compile::compile(*trace, options);
  return specialization;
}

}  // namespace

bool is_tracing() { return tracing; }

std::shared_ptr<const Specialization> specialize(PyObject* callable, const interpreter::CallArguments& arguments,
                                                 const compile::Options& options, bool full_graph) {
  try {
    Capture capture(callable, arguments, full_graph);
    return capture.run(options);
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

}  // namespace thunder::dispatch
