#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/timer.h"
#include "compile/execution.h"
#include "dispatch/call/equal_program.h"
#include "dispatch/call/number_input.h"
#include "dispatch/call/output_plan.h"
#include "dispatch/call/overrides.h"
#include "dispatch/call/specialization.h"
#include "dispatch/capture/array_inputs.h"
#include "dispatch/capture/call_transforms.h"
#include "dispatch/capture/custom_functions.h"
#include "dispatch/capture/data_reads.h"
#include "dispatch/capture/deferred_calls.h"
#include "dispatch/capture/dynamic_arguments.h"
#include "dispatch/capture/gradient_hooks.h"
#include "dispatch/capture/inner_backward.h"
#include "dispatch/capture/number_inputs.h"
#include "dispatch/capture/python_backward.h"
#include "dispatch/capture/shared_memory.h"
#include "dispatch/capture/sharp_edges.h"
#include "dispatch/capture/source_locator.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/capture/tensor_facts.h"
#include "dispatch/capture/torch_hooks.h"
#include "dispatch/capture/torch_settings.h"
#include "dispatch/capture_policy.h"
#include "dispatch/compiled_function.h"
#include "dispatch/numbers/size_origin.h"
#include "dispatch/python/backward_module.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/gil.h"
#include "dispatch/python/local_part.h"
#include "dispatch/python/python_tensor.h"
#include "dispatch/segments/segment_traces.h"
#include "interpreter/guards/guard_compiler.h"
#include "interpreter/loop/interpret.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/structures/structure_builder.h"
#include "interpreter/traces/guard_trace.h"
#include "ir/location.h"
#include "ir/trace_sizes.h"
#include "operators/facts.h"
#include "operators/names.h"
#include "tracer/data_dependence.h"
#include "tracer/kept_errors.h"
#include "tracer/numbers.h"
#include "tracer/python_function.h"
#include "tracer/recording_scopes.h"
#include "tracer/size_shadows.h"
#include "tracer/trace_session.h"
#include "transforms/functorch_layer.h"

namespace thunder::dispatch {
namespace {

/// Sizes that Python holds are objects whose class extends PyTorch's `SymInt`: not tried with Python 3.10.
constexpr bool kHasSymbolicSizes = PY_VERSION_HEX >= 0x030b0000;

/// Whether a program is long enough for handing the GIL over to pay, or waits for threads that may need it: those of a
/// process group give back tensors of Python.
bool should_release_gil(const ir::Trace& trace) {
  constexpr std::size_t kShortProgram = 16;
  return trace.symbols.size() > kShortProgram || std::ranges::any_of(trace.symbols, [](const auto& symbol) {
           return operators::communicates(*symbol.op) || symbol.op->name == operators::kGatherShards;
         });
}

using Specializations = std::span<const std::shared_ptr<const Specialization>>;

/// Marks this thread as tracing; autocast must not hand out casts that belong to another trace, or to none.
class TracingScope {
 public:
  TracingScope(PyObject* module, tracer::SizeShadows* shadows) {
    tracer::TraceSession::current().is_capturing = true;
    tracer::TraceSession::current().size_reads = shadows;
    tracer::TraceSession::current().overrides = overrides_registry(module);
    at::autocast::clear_cache();
  }
  ~TracingScope() {
    tracer::TraceSession::current().is_capturing = false;
    tracer::TraceSession::current().size_reads = nullptr;
    tracer::TraceSession::current().overrides = nullptr;
    at::autocast::clear_cache();
  }
  TracingScope(const TracingScope&) = delete;
  TracingScope& operator=(const TracingScope&) = delete;
};

// Outputs are built as plain tensors. Parameters, which switch `__torch_function__` off, do not hand their type on.
void require_plain_output(PyObject* output) {
  const py::Ref module = py::Ref::steal(py::import_module("torch"));
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(output));
  if (!module || type == plain_tensor_type()) return;
  const py::Ref base = py::Ref::steal(PyObject_GetAttrString(module.get(), "_C"));
  const py::Ref off =
      py::Ref::steal(base ? PyObject_GetAttrString(base.get(), "_disabled_torch_function_impl") : nullptr);
  const py::Ref hook = py::Ref::steal(PyObject_GetAttrString(type, "__torch_function__"));
  if (off && hook.get() == off.get()) return;
  PyErr_Clear();
  throw UserError(ErrorKind::kNotImplemented,
                  std::string("thunder.jit: expected results that are plain tensors, got the ") + "tensor subclass " +
                      Py_TYPE(output)->tp_name + "; convert with tensor.as_subclass(torch.Tensor)");
}

// The code of a function, a method, or a module's `forward`; null: there is none.
py::Ref code_of(PyObject* callable) {
  py::Ref function = py::Ref::share(callable);
  if (!PyFunction_Check(callable)) {
    const char* attribute = PyMethod_Check(callable) ? "__func__" : "forward";
    function = py::Ref::steal(PyObject_GetAttrString(callable, attribute));
    if (function && PyMethod_Check(function.get())) function = py::Ref::share(PyMethod_GET_FUNCTION(function.get()));
    PyErr_Clear();
  }
  if (!function || !PyFunction_Check(function.get())) return nullptr;
  return py::Ref::share(PyFunction_GET_CODE(function.get()));
}

// How the callable's own signature names its positional arguments, for messages and input names.
std::vector<std::string> parameter_names(PyObject* callable) {
  std::vector<std::string> names;
  const py::Ref found = code_of(callable);
  if (!found) return names;
  auto* code = reinterpret_cast<PyCodeObject*>(found.get());
  const py::Ref variables = py::Ref::steal(PyCode_GetVarnames(code));
  for (int i = PyFunction_Check(callable) ? 0 : 1; variables && i < code->co_argcount; ++i) {
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(variables.get(), i));
    names.emplace_back(name == nullptr ? "" : name);
  }
  return names;
}

/// While an operation is recorded. PyTorch calls operators without the GIL, recording needs it, and Python code that
/// kernels call to find out about shapes is not part of the program. Notes the user's line when the operation fails.
class OutsideProgram {
 public:
  OutsideProgram(SourceLocator& locator, ir::SourceLocation& failed)
      : locator_(locator), failed_(failed), exceptions_(std::uncaught_exceptions()) {}
  ~OutsideProgram() {
    if (std::uncaught_exceptions() != exceptions_) failed_ = locator_.here();
  }
  OutsideProgram(const OutsideProgram&) = delete;
  OutsideProgram& operator=(const OutsideProgram&) = delete;

 private:
  GilHold gil_;
  interpreter::NativeScope native_;
  SourceLocator& locator_;
  ir::SourceLocation& failed_;
  int exceptions_;
};

/// A condition with the sizes of the user's tensors in the place of symbols: `x.shape[0] <= 10`.
std::string with_names(const std::string& text, const std::vector<std::string>& names) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    const bool is_symbol = text[i] == 's' && end > i + 1;
    const std::size_t symbol = is_symbol ? std::stoul(text.substr(i + 1, end - i - 1)) : names.size();
    result += symbol < names.size() ? names[symbol] : text.substr(i, is_symbol ? end - i : 1);
    i = is_symbol ? end : i + 1;
  }
  return result;
}

/// Buffers of a module have the sizes that they have.
bool may_be_guessed(const std::string& path) { return !path.starts_with("self."); }

SizeHistory::Seen seen_input(const at::Tensor& tensor) {
  return {tensor.sizes().vec(), c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)};
}

/// One trace in the making.
class Capture final : tracer::RecordingHost {
 public:
  using Storages = std::vector<const c10::StorageImpl*>;

  /// Facts that a trace must know from its beginning, as earlier attempts found them.
  struct Known {
    Storages shared{};
    bool live = false;  ///< see custom_functions.h
    PythonBackwards::Found backwards{};
    PinnedSizes pinned{};                     ///< sizes of the arguments that are numbers, with the line
    std::vector<ir::Condition> conditions{};  ///< on sizes, which the program has decided on
    SizeHistory::Inputs changing{};           ///< inputs with sizes that are other ones than in earlier traces
    bool may_guess = true;                    ///< which other sizes are going to change
    std::set<std::string> constants{};        ///< numbers that change, and are constants all the same
    bool operator==(const Known&) const = default;
  };

  Capture(const Traced& traced, const interpreter::CallArguments& arguments, const TraceOptions& how,
          const Known& known)
      : RecordingHost(tracer::Recorded::kProgram),
        callable_(traced.callable),
        module_(traced.module),
        arguments_(arguments),
        context_(std::make_shared<ir::TraceContext>()),
        locator_(context_),
        is_exact_(how.sharp_edges == SharpEdges::kExact),
        sharp_edges_(how.sharp_edges, locator_),
        custom_functions_(known.live, locator_, failed_),
        recorder_(ir::Trace(ir::TraceKind::kComputation, context_), *this),
        python_backwards_(recorder_, sharp_edges_, known.backwards, failed_),
        overrides_(traced.module),
        pinned_(known.pinned),
        conditions_(known.conditions),
        changing_(known.changing),
        may_guess_(known.may_guess),
        how_(how.dynamic),
        history_(how.sizes),
        dynamic_(arguments, how.dynamic, pinned_, changing_),
        number_inputs_(recorder_, numbers_, dynamic_, known.constants, sizes_),
        hooks_(recorder_, overrides_),
        backward_(recorder_, hooks_),
        tracker_(hooks_, make_options()) {
    recorder_.data.full_graph = how.full_graph;
    recorder_.memory.shared_storages = known.shared;
    python_backwards_.tracker = &tracker_;
    numbers_->recorder = &recorder_;
  }

  ~Capture() override { numbers_->recorder = nullptr; }

  /// `others` are the specializations of the same callable.
  TraceOutcome attempt(Specializations others, const compile::Options& options);
  /// The facts that this attempt found, for the next one.
  [[nodiscard]] Known known(const Known& before, bool failed) const {
    PinnedSizes pinned = before.pinned;
    std::vector<ir::Condition> conditions = before.conditions;
    // With more symbols, what is pinned and decided is found again.
    tracer::SizeShadows* const shadows = wants_symbols_ ? nullptr : shadows_.get();
    // A trace that fails with symbols may not fail without.
    if (shadows != nullptr && failed && !shadows->wants_samples() && shadows->pinned().empty()) shadows->pin_all();
    if (shadows != nullptr) shadows->settle();
    // Numbers that are inputs are not to blame for what another attempt does about sizes.
    const bool is_explained =
        wants_symbols_ || (shadows != nullptr && (shadows->wants_samples() || !shadows->pinned().empty()));
    for (std::size_t i = 0; shadows != nullptr && i < shadows->reasons().size(); ++i) {
      const auto& [symbol, line] = shadows->reasons()[i];
      pinned.emplace(dynamic_.values_of(symbol), ir::describe_line(line));
    }
    for (std::size_t i = 0; shadows != nullptr && i < shadows->assumed().size(); ++i) {
      const ir::Condition& condition = shadows->assumed()[i].condition;
      if (std::ranges::find(conditions, condition) == conditions.end()) conditions.push_back(condition);
    }
    // Conditions name symbols, which are others when some of them are pinned.
    SizeHistory::Inputs inputs = failed && !wants_symbols_ ? before.changing : changing();
    // Who pins what is seen without the guesses.
    const bool keeps_guesses = pinned == before.pinned || how_ == DynamicSizes::kAll || !has_guesses(before.changing);
    if (!keeps_guesses) {
      pinned = before.pinned;
      remove_guesses(inputs);
    }
    const bool has_same_symbols = pinned == before.pinned && inputs == before.changing;
    if (!has_same_symbols) {
      conditions.clear();
    } else if (shadows == nullptr || !shadows->wants_samples()) {
      conditions = before.conditions;
    }
    return {recorder_.memory.shared_storages,
            before.live || custom_functions_.wants_live(failed),
            python_backwards_.found(),
            std::move(pinned),
            std::move(conditions),
            std::move(inputs),
            before.may_guess && keeps_guesses,
            number_inputs_.constants(failed && !is_explained)};
  }

  /// Inputs whose sizes are other ones than in earlier traces.
  [[nodiscard]] SizeHistory::Inputs changing() const {
    SizeHistory::Inputs inputs = changing_;
    for (const auto& [path, sizes] : sizes_) {
      if (history_ == nullptr || inputs.contains(path)) continue;
      SizeHistory::Changing input = history_->compare(path, sizes);
      if (!input.sizes.empty()) inputs.emplace(path, std::move(input));
    }
    if (history_ != nullptr && may_guess_) history_->add_guesses(inputs, seen_);
    if (how_ == DynamicSizes::kAll) add_data_sizes(inputs);
    return inputs;
  }
  /// Where all sizes are symbols, those that follow from data are from the first time on.
  void add_data_sizes(SizeHistory::Inputs& inputs) const {
    const auto& observed = recorder_.data.data_sized();
    const std::vector<std::string> paths = data_size_paths(observed);
    for (std::size_t i = 0; i < paths.size(); ++i) {
      SizeHistory::Changing sizes{observed[i].sizes, observed[i].sizes};
      const auto is_small = [](std::int64_t size) { return size < 2; };
      std::ranges::replace_if(sizes.before, is_small, -1);
      const bool has_symbols = std::ranges::any_of(sizes.before, [](std::int64_t size) { return size != -1; });
      if (has_symbols) inputs.emplace(paths[i], std::move(sizes));
    }
  }
  /// Sizes that follow from data have a history, as those of inputs.
  void note_data_sizes() {
    if (history_ == nullptr) return;
    const auto& observed = recorder_.data.data_sized();
    const std::vector<std::string> paths = data_size_paths(observed);
    for (std::size_t i = 0; i < paths.size(); ++i) {
      if (!paths[i].empty()) sizes_[paths[i]] = observed[i].sizes;
    }
  }
  /// The symbols of the sizes that an operation of the program gives, by its place among those that follow from data.
  [[nodiscard]] std::vector<std::optional<std::uint32_t>> symbols_of_data(std::size_t place) const {
    const auto& observed = recorder_.data.data_sized();
    return dynamic_.symbols_of(data_size_paths(observed).at(place), observed[place].sizes);
  }

  /// The trace is kept: later ones compare sizes with its inputs'.
  void remember_sizes() const {
    if (history_ == nullptr) return;
    number_inputs_.remember(*history_);
    if (!may_guess_) history_->refuse_guesses();
    for (const auto& [path, sizes] : sizes_) {
      history_->note(path, sizes);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const auto input = changing_.find(path);
        const bool changes =
            input != changing_.end() && input->second.before[i] != -1 && input->second.before[i] != sizes[i];
        if (changes && (!has_symbols_ || pinned_.contains({sizes[i], input->second.before[i]}))) history_->pin(path, i);
      }
    }
  }

  /// Whether something from outside raised an exception in the program. It may have come anywhere, and comes out of the
  /// call as if it had come before: what the program does about it says nothing of the next call.
  [[nodiscard]] bool is_interrupted() const { return tracker_.is_interrupted(); }
  /// The tensors of the trace that still exist: whoever keeps one for longer than the capture is nobody we know.
  [[nodiscard]] std::vector<tracer::WeakTensor> kept_tensors() const {
    std::vector<tracer::WeakTensor> tensors;
    recorder_.add_kept_tensors(tensors);
    return tensors;
  }

 private:
  std::shared_ptr<const Specialization> run(Specializations others, const compile::Options& options);
  /// After a failure, whose exception is set: a specialization for calls that would fail like this one, or null.
  std::shared_ptr<const Specialization> make_eager();
  ir::SourceLocation locate() override { return locator_.here(); }
  std::shared_ptr<void> leave_program() override { return std::make_shared<OutsideProgram>(locator_, failed_); }
  std::vector<at::Tensor> derive(tracer::TraceNode& node, std::vector<at::Tensor> cotangents) override {
    // Nodes have the sizes that were traced.
    if (shadows_ != nullptr) shadows_->pin_all();
    return backward_.derive(node, std::move(cotangents));
  }
  interpreter::TrackerOptions make_options();
  bool admit_arguments();
  py::Ref call();
  py::Ref interpret();
  std::optional<ir::Trace> finish(py::Borrowed result);
  /// Records at other sizes too, where sizes of the arguments are symbols.
  void add_shadows(const compile::Options& options);
  /// Makes the trace one for all sizes, if it is recorded at several. False: sizes are pinned, and an exception is set.
  bool generalize(ir::Trace& trace);
  /// Pins what sizes and views among the results follow from, where that is data.
  void pin_results_of_data();
  /// Sets the exception after which the program is traced again, with more sizes that are numbers.
  static void ask_for_another_attempt();
  void fill(Specialization& specialization);
  /// Where the sizes are, by symbol, that it stands for: `x.shape[0]`.
  [[nodiscard]] std::vector<std::vector<std::string>> places_of_symbols() const;
  /// The first of these places, by symbol.
  [[nodiscard]] std::vector<std::string> names_of_symbols() const;
  /// Says in words of people what there is of symbols and conditions.
  void describe_sizes(Specialization& specialization) const;

  PyObject* callable_;
  PyObject* module_;  ///< see Traced
  const interpreter::CallArguments& arguments_;
  std::shared_ptr<ir::TraceContext> context_;
  SourceLocator locator_;
  ThreadState state_;          ///< before the trace
  ir::SourceLocation failed_;  ///< where the last operation that failed was called
  bool is_compiling_ = false;  ///< the program has been recorded
  bool is_exact_;              ///< each call prints what the program prints
  SharpEdgeWatch sharp_edges_;
  CustomFunctions custom_functions_;
  TensorFacts facts_;
  tracer::Recorder recorder_;
  PythonBackwards python_backwards_;
  std::shared_ptr<NumberTrace> numbers_ = std::make_shared<NumberTrace>();
  DataReads reads_{numbers_};
  ArrayInputs arrays_{recorder_};
  Overrides overrides_;
  PinnedSizes pinned_;
  std::vector<ir::Condition> conditions_;
  SizeHistory::Inputs changing_;
  bool may_guess_;
  DynamicSizes how_;
  SizeHistory* history_;
  std::map<PyObject*, std::string> paths_;           ///< where inputs were found
  std::map<std::string, SizeHistory::Sizes> sizes_;  ///< by where inputs were found
  std::map<std::string, SizeHistory::Seen> seen_;    ///< tensors among them whose sizes may be guessed to change
  DynamicArguments dynamic_;
  NumberInputs number_inputs_;
  std::unique_ptr<tracer::SizeShadows> shadows_;
  bool has_symbols_ = false;    ///< the trace is for many sizes
  bool wants_symbols_ = false;  ///< sizes are other ones than in earlier traces: they are to be symbols
  TorchHooks hooks_;
  InnerBackward backward_;
  GradientHooks gradient_hooks_{recorder_, python_backwards_};
  DeferredCalls deferred_{recorder_, tracker_};
  interpreter::Tracker tracker_;
  TorchSettings settings_{tracker_};
  interpreter::Structure structure_;
  InputWrites writes_;
  OutputPlan plan_;
  py::Ref positional_;
  py::Ref keywords_;
};

interpreter::TrackerOptions Capture::make_options() {
  interpreter::TrackerOptions options;
  options.locate = [this] { return locator_.here(); };
  options.treatment = treatment_of;
  options.is_library = is_library;
  options.note_type = [this](const PyTypeObject* type) { settings_.note_type(type); };
  options.unwrap = wrapped_callable;
  options.intercept = [this](PyObject* callable, const interpreter::NativeCall& call, PyObject** result) {
    const bool may_defer = is_exact_ && !sharp_edges_.is_in_trial();
    if (const int status = may_defer ? deferred_.intercept(call, result) : 0; status != 0) return status;
    if (const int status = settings_.intercept(callable, call, result); status != 0) return status;
    if (!sharp_edges_.allows(callable, call, tracker_)) return -1;
    return reads_.intercept(callable, call, result);
  };
  options.convert = [this](PyObject* callable, const interpreter::NativeCall& call, PyObject** result) {
    return arrays_.convert(tracker_, callable, call, result);
  };
  options.notice_handler = note_caught_refusal;
  add_substitutes(options);
  reads_.add_substitutes(options);
  backward_.add_substitutes(options, tracker_);
  gradient_hooks_.add_substitutes(options);
  add_checkpoint_substitute(options, python_backwards_);
  custom_functions_.add_substitutes(options, python_backwards_);
  sharp_edges_.add_substitutes(options);
  if (is_exact_) deferred_.add_substitutes(options);
  facts_.add_substitutes(options);
  for (const char* name : {"simplefilter", "filterwarnings", "resetwarnings"}) {
    options.substitute(loaded_function("warnings", name).get(),
                       [this](PyObject* const*, std::size_t, PyObject*, PyObject**) {
                         settings_.note_warnings();
                         return 0;
                       });
  }
  return options;
}

bool Capture::admit_arguments() {
  const bool is_function = PyFunction_Check(callable_);
  tracker_.admit_constant(callable_, is_function ? interpreter::describe(callable_) : "self");
  if (module_ != callable_ && has_overrides(module_)) tracker_.admit_constant(module_, "module");
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

/// Calls the callable; what stands for it in a trace is asked for its arguments only where Python code calls it.
py::Ref Capture::call() {
  const py::Ref code = code_of(callable_);
  const int flags = code ? reinterpret_cast<const PyCodeObject*>(code.get())->co_flags : 0;
  if ((flags & (CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0) {
    PyErr_SetString(PyExc_NotImplementedError,
                    "thunder.jit: what a coroutine function gives is run by an event loop; compile what it calls");
    return nullptr;
  }
  const py::Ref apply = loaded_function("torch.autograd", "Function.apply.__func__");
  const bool is_apply = PyMethod_Check(callable_) && PyMethod_GET_FUNCTION(callable_) == apply.get();
  if (!is_apply) {
    return py::Ref::steal(interpreter::interpret(callable_, positional_.get(), keywords_.get(), &tracker_));
  }
  const py::Ref in_python = python_backward_function("call");
  const py::Ref arguments = py::Ref::steal(PyTuple_Pack(3, callable_, positional_.get(), keywords_.get()));
  if (!arguments) return nullptr;
  return py::Ref::steal(interpreter::interpret(in_python.get(), arguments.get(), nullptr, &tracker_));
}

py::Ref Capture::interpret() {
  const TracingScope scope(module_, shadows_.get());
  const NumbersOfSizes numbers(numbers_);
  if (is_exact_ && !deferred_.begin()) return nullptr;
  if (!admit_arguments()) return nullptr;
  const tracer::RecordTop record(recorder_);
  static_cast<void>(tracer::take_refusal());
  py::Ref result = call();
  tracker_.leave_objects();
  // Guards of dispatch keys among the variables put back what held when they were made: here, while that holds.
  if (!result && PyErr_Occurred() != nullptr) release_frames_of_pending();
  if (const std::string refused = tracer::take_refusal(); result && !refused.empty()) {
    throw UserError(ErrorKind::kNotImplemented, refused);
  }
  const bool is_whole = result && gradient_hooks_.record(tracker_) && take_added_parameters(module_, hooks_, tracker_);
  return is_whole ? std::move(result) : py::Ref();
}

std::optional<ir::Trace> Capture::finish(py::Borrowed result) {
  interpreter::StructureBuilder builder(tracker_);
  if (!builder.add_result(result) || !builder.add_effects(tracker_.journal())) return std::nullopt;
  gradient_hooks_.require_on_computed(builder.outputs());
  if (!gradient_hooks_.leave_those_of_outputs(builder.outputs())) return std::nullopt;
  // Hooks first: `requires_grad_(False)` is among the effects of backwards, and a hook needs a tensor that requires
  // grad.
  if (!gradient_hooks_.add_effects(builder) || !backward_.add_effects(builder)) return std::nullopt;
  if (!python_backwards_.add_effects(builder) || !deferred_.add_effects(builder)) return std::nullopt;
  gradient_hooks_.require_recorded(builder.outputs());
  backward_.require_readable(builder.outputs(), python_backwards_);
  backward_.require_nothing_retained(tracker_);
  OutputPlanner planner(recorder_, shadows_.get());
  for (const py::Ref& output : builder.outputs()) {
    if (is_tensor(output.get())) planner.note_view(output.get());
  }
  recorder_.memory.return_written();
  for (const py::Ref& output : builder.outputs()) {
    if (is_traced_number(output.get())) {
      planner.add_number(value_of_number(output.get()));
      continue;
    }
    if (const auto size = dim_of_size_number(output.get())) {
      planner.add_size(*size);
      continue;
    }
    require_plain_output(output.get());
    planner.add_tensor(output.get());
  }
  ir::ArgumentList outputs = planner.outputs();
  gradient_hooks_.require_made(outputs);
  structure_ = builder.finish();
  writes_ = InputWrites(recorder_, reads_buffers(tracker_));
  for (const auto& [input, value] : recorder_.memory.inputs_with_new_history()) outputs.emplace_back(value);
  require_same_attributes(hooks_);
  require_no_shared_effects(recorder_, tracker_);
  ir::Trace trace = recorder_.finish(std::move(outputs));
  plan_ = planner.finish(trace);
  require_as_seen(hooks_, recorder_.memory.written_inputs(), structure_, plan_);
  tracer::keep_errors(trace);
  return trace;
}

bool can_have_symbols(const compile::Options& options, PyObject* module) {
  return kHasSymbolicSizes && !compile::has_extensions(options) && !has_overrides(module);
}

void Capture::add_shadows(const compile::Options& options) {
  if (!can_have_symbols(options, module_)) {
    history_ = nullptr;
    return;
  }
  hooks_.note_input = [this](PyObject* real, const at::Tensor& traced, const std::string& path) {
    paths_[real] = path;
    if (history_ == nullptr || is_parameter(real)) return;
    static_cast<void>(traced);
    const at::Tensor& tensor = unpack_tensor(real);
    if (tensor.layout() != at::kStrided) return;
    sizes_[path] = tensor.sizes().vec();
    if (may_be_guessed(path)) seen_[path] = seen_input(tensor);
  };
  hooks_.input_for_number = [this](PyObject* number, const std::string& path) {
    return number_inputs_.input_for(number, path, history_, shadows_.get());
  };
  hooks_.note_number = [this](PyObject* real, const at::Tensor& traced, const std::string& path) {
    paths_[real] = path;
    return number_inputs_.note(real, traced, path, shadows_.get());
  };
  if (dynamic_.symbols().empty()) return;
  shadows_ = std::make_unique<tracer::SizeShadows>(recorder_, dynamic_.symbols(), conditions_);
  shadows_->symbols_of_data = [this](std::size_t place) { return symbols_of_data(place); };
  hooks_.note_input = [this, note = hooks_.note_input](PyObject* real, const at::Tensor& traced,
                                                       const std::string& path) {
    note(real, traced, path);
    dynamic_.find(real, path);
    shadows_->add_input(traced, dynamic_.symbols_of(real));
  };
}

void Capture::ask_for_another_attempt() {
  PyErr_SetString(PyExc_NotImplementedError, "thunder.jit: a size that was a symbol is needed as a number");
}

// A call computes sizes and views among its results of the sizes of its inputs.
void Capture::pin_results_of_data() {
  if (recorder_.data.data_sized().empty()) return;
  if (!plan_.views.empty()) return shadows_->pin_all();
  std::set<std::uint32_t> of_inputs;
  for (const py::Ref& input : hooks_.inputs()) {
    for (const std::optional<std::uint32_t>& symbol : dynamic_.symbols_of(input.get())) {
      if (symbol) of_inputs.insert(*symbol);
    }
  }
  for (const OutputPlan::Source& source : plan_.sources) {
    std::vector<std::uint32_t> symbols;
    if (source.size) ir::add_symbols(*source.size, symbols);
    const auto is_of_input = [&](std::uint32_t symbol) { return of_inputs.contains(symbol); };
    if (!std::ranges::all_of(symbols, is_of_input)) shadows_->pin_symbols_of(*source.size);
  }
}

bool Capture::generalize(ir::Trace& trace) {
  if (shadows_ == nullptr) return true;
  if (!recorder_.memory.shared_storages.empty()) shadows_->pin_all();
  pin_results_of_data();
  std::optional<ir::Trace> general = shadows_->generalize(trace);
  if (!general) {
    ask_for_another_attempt();
    return false;
  }
  trace = *std::move(general);
  has_symbols_ = !ir::symbols_of(trace).empty();
  return true;
}

std::vector<std::vector<std::string>> Capture::places_of_symbols() const {
  std::vector<std::vector<std::string>> places(dynamic_.symbols().size());
  for (const py::Ref& input : hooks_.inputs()) {
    const auto symbols = dynamic_.symbols_of(input.get());
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (!symbols[i]) continue;
      const bool is_number = number_inputs_.is_int(input.get());
      const std::string dim = is_number ? std::string() : ".shape[" + std::to_string(i) + "]";
      places[*symbols[i]].push_back(paths_.at(input.get()) + dim);
    }
  }
  const std::vector<std::string> data_paths = data_size_paths(recorder_.data.data_sized());
  for (std::size_t place = 0; place < data_paths.size(); ++place) {
    for (const std::optional<std::uint32_t>& symbol : symbols_of_data(place)) {
      if (symbol) places[*symbol].push_back("size of " + data_paths[place]);
    }
  }
  return places;
}

std::vector<std::string> Capture::names_of_symbols() const {
  std::vector<std::string> names;
  for (const auto& found : places_of_symbols()) names.push_back(found.empty() ? "?" : found.front());
  return names;
}

void Capture::describe_sizes(Specialization& specialization) const {
  const std::vector<std::vector<std::string>> places = places_of_symbols();
  const std::vector<std::string> names = names_of_symbols();
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].empty()) continue;
    specialization.size_symbols.push_back("s" + std::to_string(i) + ": " + names[i]);
    specialization.size_conditions.push_back("2 <= " + names[i]);
    for (std::size_t k = 1; k < places[i].size(); ++k) {
      specialization.size_conditions.push_back(names[i] + " == " + places[i][k]);
    }
  }
  for (const auto& [condition, location] : shadows_->assumed()) {
    specialization.size_conditions.push_back(with_names(ir::to_string(condition), names) +
                                             ir::describe_line(location, " (", ")"));
  }
}

void Capture::fill(Specialization& specialization) {
  interpreter::GuardCompiler compiler(tracker_.provenance(), hooks_);
  specialization.guards = compiler.compile(arguments_.positional, arguments_.names);
  for (const py::Ref& input : hooks_.inputs()) {
    const at::Tensor& tensor = unpack_tensor(input.get());
    specialization.tensors.emplace_back(tensor, facts_.reads_offset(tensor), recorder_.tensors.is_view_asked(tensor));
    if (is_distributed(input.get())) specialization.tensors.back().add_local_part(stored_part(input.get()));
    const auto symbols = has_symbols_ ? dynamic_.symbols_of(input.get()) : decltype(dynamic_.symbols_of(nullptr))();
    std::vector<bool> is_free;
    for (const std::optional<std::uint32_t>& symbol : symbols) is_free.push_back(symbol.has_value());
    if (std::ranges::find(is_free, true) != is_free.end()) specialization.tensors.back().free_sizes(std::move(is_free));
  }
  specialization.has_symbols = has_symbols_;
  if (has_symbols_) describe_sizes(specialization);
  for (const auto& [size, line] : pinned_) {
    specialization.pinned_sizes.push_back(std::to_string(size.first) + (line.empty() ? line : " by " + line));
  }
  specialization.structure = std::move(structure_);
  specialization.writes = std::move(writes_);
  specialization.histories = backward_.histories();
  specialization.plan = std::move(plan_);
  for (std::size_t i = 0; i < hooks_.states().size(); ++i) {
    const bool was_leaf = unpack_tensor(hooks_.states()[i].real.get()).requires_grad();
    if (!was_leaf && hooks_.states()[i].override == nullptr &&
        unpack_tensor(hooks_.states()[i].traced.get()).requires_grad() &&
        unpack_tensor(hooks_.states()[i].traced.get()).is_leaf()) {
      specialization.new_leaves.push_back(static_cast<std::uint32_t>(i));
    }
  }
  for (const interpreter::StructurePart& part : specialization.structure.parts()) {
    if (part.kind == interpreter::PartKind::kInput) specialization.returned_inputs.push_back(part.index);
  }
  for (const OutputPlan::Source& source : specialization.plan.sources) {
    if (source.is_input) specialization.returned_inputs.push_back(source.index);
  }
}

/// Where effects are deferred, running statistics are written by copies.
void keep_versions_of_statistics(const ir::Trace& trace, runtime::Versions& versions) {
  for (const std::uint32_t input : inputs_with_statistics(trace)) {
    const auto is_noted = [&](const auto& noted) { return noted.first == input; };
    if (std::ranges::none_of(versions.inputs, is_noted)) versions.inputs.emplace_back(input, 0);
  }
}

void note_versions(const ir::Trace& trace, const runtime::Versions& versions, SegmentPath& path) {
  for (std::size_t i = 0; i < versions.outputs.size(); ++i) {
    const auto* id = trace.outputs[i].get<ir::ValueId>();
    if (id != nullptr && versions.outputs[i] != 0) path.versions.emplace(*id, versions.outputs[i]);
  }
  for (const auto& [input, count] : versions.inputs) path.writes.emplace(trace.inputs[input], count);
}

bool looks_at_data(const ir::BoundSymbol& symbol) {
  return tracer::is_check(*symbol.op) || symbol.op == tracer::number_operator();
}

void compile_computation(const ir::Trace& trace, Specializations known, const compile::Options& options,
                         Specialization& specialization) {
  specialization.draws_random =
      std::ranges::any_of(trace.symbols, [](const ir::BoundSymbol& symbol) { return symbol.op->random; });
  const auto stands_alone = [](const ir::BoundSymbol& symbol) { return tracer::stands_alone(*symbol.op); };
  specialization.checks_values = std::ranges::any_of(trace.symbols, looks_at_data);
  const auto alone = std::ranges::find_if(trace.symbols, stands_alone);
  if (specialization.checks_values || alone != trace.symbols.end()) {
    keep_versions_of_statistics(trace, specialization.plan.versions);
  }
  if (specialization.checks_values || alone != trace.symbols.end()) {
    std::vector<const SegmentPath*> others;
    for (const auto& other : known) {
      if (!other->path.empty()) others.push_back(&other->path);
    }
    specialization.path = make_path(trace, others, options);
    if (!specialization.path.empty()) {
      note_versions(trace, specialization.plan.versions, specialization.path);
      specialization.computation = traces_of(trace, specialization.path);
      return;
    }
  }
  if (!ir::found_symbols(trace).empty()) {
    throw UserError(ErrorKind::kNotImplemented, "thunder.jit: a size that follows from data is needed as a number");
  }
  if (alone != trace.symbols.end()) {
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: not supported inside a jitted function: a backward that runs as Python in a program "
                    "that makes random generators");
  }
  if (!specialization.checks_values) specialization.statistics = statistics_before_errors(trace);
  share_or_compile(specialization.checks_values ? defer_effects(trace) : trace, options, known, specialization);
}

[[noreturn]] void refuse_change(const std::string& change) {
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: the function leaves " + change + " changed; set it outside");
}

/// Refuses a program that leaves a mode or setting of the thread or the process changed, other than grad mode: later
/// calls would not change it.
void require_restored(const ThreadState& before) {
  ThreadState after = ThreadState::now();
  after.grad_mode = before.grad_mode;
  if (after == before && !has_unknown_layers()) return;
  const std::vector<ThreadState::Entry> was = before.entries(), is = after.entries();
  std::string change = "a mode";
  for (std::size_t i = 0; i < was.size(); ++i) {
    if (was[i].value != is[i].value) change = was[i].expression;
  }
  refuse_change(change);
}

/// Refuses a program that assigns to variables which a backward reads: it has what they held before.
void require_same_variables(const interpreter::Tracker& tracker) {
  if (tracker.parts().reads_same_variables()) return;
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: a part under torch.utils.checkpoint, or a hook or backward, reads a variable of the "
                  "function around it that is assigned anew afterwards; give it as an argument, or as a default");
}

std::shared_ptr<const Specialization> Capture::run(Specializations others, const compile::Options& options) {
  const Timer timer;
  const compile::ExecutorScope executors(options.executors);
  auto specialization = std::make_shared<Specialization>();
  std::optional<ir::Trace> trace;
  {
    const RestoreThreadState restore;
    state_ = restore.state();
    specialization->state = state_;
    specialization->context = context_;
    add_shadows(options);
    const py::Ref result = interpret();
    if (!result) return nullptr;
    if (const auto changed = settings_.restore()) refuse_change(*changed);
    specialization->grad_mode_after = c10::GradMode::is_enabled();
    require_restored(restore.state());
    require_same_variables(tracker_);
    trace = finish(result.get());
    if (!trace) return nullptr;
  }
  is_compiling_ = true;
  tracker_.journal().rollback();
  note_data_sizes();
  if (changing() != changing_) {
    wants_symbols_ = true;
    ask_for_another_attempt();
    return nullptr;
  }
  if (number_inputs_.needs_constants(*trace)) {
    ask_for_another_attempt();
    return nullptr;
  }
  if (!generalize(*trace)) return nullptr;
  fill(*specialization);
  const auto is_size = [](const OutputPlan::Source& source) { return source.size.has_value(); };
  const OutputPlan& plan = specialization->plan;
  if (!plan.views.empty() || std::ranges::any_of(plan.sources, is_size)) {
    specialization->symbols = ir::symbol_sources(*trace);
  }
  specialization->trace_seconds = timer.seconds();
  for (std::size_t i = 0; i < trace->outputs.size(); ++i) {
    const auto* id = trace->outputs[i].get<ir::ValueId>();
    if (id != nullptr && tracer::is_number(*trace, *id)) specialization->number_outputs.push_back(i);
  }
  transform_call({callable_, module_}, hooks_, options, *trace, *specialization);
  specialization->releases_gil = should_release_gil(*trace);
  try {
    compile_computation(*trace, others, options, *specialization);
  } catch (const std::exception&) {
    if (!has_symbols_) throw;
    shadows_->pin_all();
    ask_for_another_attempt();
    return nullptr;
  }
  for (PathSizes::SizeCondition& each : specialization->path.sizes.conditions) {
    each.text = with_names(each.text, names_of_symbols());
  }
  count_by_guards(specialization->taken, specialization->statistics);
  if (!has_symbols_ && specialization->path.empty()) {
    specialization->graph = GraphReplay::make(*specialization->computation, options.cuda_graphs);
    specialization->training_graph = TrainingGraph::make(*specialization->computation, options.cuda_graphs);
  }
  return specialization;
}

std::shared_ptr<const Specialization> Capture::make_eager() {
  const py::SavedError failure;
  tracker_.journal().rollback();
  if (std::ranges::any_of(recorder_.trace().symbols, looks_at_data)) return nullptr;
  auto specialization = std::make_shared<Specialization>();
  specialization->runs_eager = true;
  specialization->context = context_;
  specialization->state = state_;
  try {
    fill(*specialization);
  } catch (...) {
    set_python_error();
  }
  const bool is_filled = PyErr_Occurred() == nullptr;
  PyErr_Clear();
  return is_filled ? specialization : nullptr;
}

/// Whether the pending exception is one of thunder's own of this name.
bool is_pending(std::string_view name) { return name == reinterpret_cast<PyTypeObject*>(PyErr_Occurred())->tp_name; }

TraceOutcome Capture::attempt(Specializations others, const compile::Options& options) {
  TraceOutcome outcome;
  try {
    outcome.made = run(others, options);
  } catch (...) {
    set_python_error();
  }
  if (outcome.made != nullptr && !is_interrupted()) return outcome;
  outcome.made = nullptr;
  tracker_.leave_objects();
  const bool is_kept = !tracker_.native_calls().has_fresh_memos();
  tracker_.native_calls().forget_memoized();
  if (is_interrupted()) {
    tracker_.raise_interruption();
    return outcome;
  }
  // Code in C that the program calls may fail without saying how.
  if (PyErr_Occurred() == nullptr)
    PyErr_SetString(PyExc_SystemError, "thunder.jit: a call failed without an exception");
  outcome.location = failed_;
  outcome.context = context_;
  // Once the program is recorded, what fails is an executor or transform of the user's, or ours. So does a derivative
  // that eager does not look for before the backward. A ValueError is about an option: the name of a pass.
  const bool is_told = compile::has_extensions(options) || is_pending("ValueError");
  const bool is_extension = is_compiling_ && is_told && !is_pending("InternalError");
  outcome.may_run_eager =
      !is_extension && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) == 0 && !is_pending("SharpEdgeError");
  if (outcome.may_run_eager && is_kept) outcome.made = make_eager();
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

}  // namespace

namespace {

/// With symbols; after so many the program is traced for the sizes of the call.
constexpr int kMostAttempts = 12;

void give_symbols_up(const SizeHistory::Inputs& changing, SizeHistory& history) {
  for (const auto& [path, input] : changing) {
    for (std::size_t i = 0; i < input.sizes.size(); ++i) {
      if (input.before[i] != -1) history.pin(path, i);
    }
  }
}

/// Inputs with sizes that are other ones than in earlier traces, as far as the guards of such a trace lead to them:
/// what is missing here is found by tracing.
SizeHistory::Inputs find_changing(const Specialization& like, const interpreter::CallArguments& arguments,
                                  const SizeHistory& history) {
  SizeHistory::Inputs changing;
  std::map<std::string, SizeHistory::Seen> seen;
  for (const auto& [path, value] : like.guards.values(arguments)) {
    const bool is_number = PyLong_CheckExact(value.get());
    const bool is_input =
        is_tensor(value.get()) && !is_parameter(value.get()) && unpack_tensor(value.get()).layout() == at::kStrided;
    if (!is_input && !(is_number && may_be_symbol(value.get()))) continue;
    const std::string key = is_number ? number_path(path) : path;
    SizeHistory::Changing input = history.compare(
        key, is_number ? SizeHistory::Sizes{PyLong_AsLongLong(value.get())} : unpack_tensor(value.get()).sizes().vec());
    if (!input.sizes.empty()) changing.emplace(key, std::move(input));
    if (is_input && may_be_guessed(path)) seen.emplace(path, seen_input(unpack_tensor(value.get())));
  }
  history.add_guesses(changing, seen);
  return changing;
}

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
  try {
    Capture::Known known;
    const bool may_have_symbols = can_have_symbols(options, traced.module) && how.sizes != nullptr;
    if (may_have_symbols && !others.empty()) known.changing = find_changing(*others.back(), arguments, *how.sizes);
    for (int attempt = 0;; ++attempt) {
      if (attempt == kMostAttempts && how.sizes != nullptr) give_symbols_up(known.changing, *how.sizes);
      const auto capture_how = attempt < kMostAttempts ? how : without_symbols(how);
      if (attempt >= kMostAttempts) known.changing.clear();
      auto capture = std::make_unique<Capture>(traced, arguments, capture_how, known);
      TraceOutcome outcome = capture->attempt(others, options);
      if (capture->is_interrupted()) return outcome;
      const bool failed = PyErr_Occurred() != nullptr;
      Capture::Known found = capture->known(known, failed);
      if (found == known) {
        if (!failed && how.sizes != nullptr) capture->remember_sizes();
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
