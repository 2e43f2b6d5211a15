#include "dispatch/program_capture.h"

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "dispatch/capture/call_transforms.h"
#include "dispatch/capture/end_checks.h"
#include "dispatch/capture/shared_memory.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/capture_policy.h"
#include "dispatch/compiled_function.h"
#include "dispatch/numbers/number_arguments.h"
#include "dispatch/numbers/size_object.h"
#include "dispatch/numbers/size_origin.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/gil.h"
#include "dispatch/python/local_part.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/guards/guard_compiler.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/loop/signal_handlers.h"
#include "interpreter/structures/structure_builder.h"
#include "tracer/kept_errors.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"

namespace thunder::dispatch {
namespace {

constexpr const char* kNumbersAreRefused =
    "thunder.jit: code in C does not take what stands for a number: the function is traced with plain ones";

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
  interpreter::SignalHold hold_;
  SourceLocator& locator_;
  ir::SourceLocation& failed_;
  int exceptions_;
};

/// Whether the pending exception is the program's own, and neither `refused` nor another refusal.
bool raises_beside(std::string_view refused) {
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return false;
  const interpreter::NativeScope native;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const py::Ref text = py::Ref::steal(value == nullptr ? nullptr : PyObject_Str(value));
  const char* start = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  const std::string_view message = start == nullptr ? "" : start;
  const bool is_refusal = message.starts_with("thunder") || tracer::says_data_was_read(message) ||
                          message.find("INTERNAL ASSERT FAILED") != message.npos ||
                          message.find(refused) != message.npos || refused.find(message) != refused.npos;
  PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return !is_refusal;
}

}  // namespace

ProgramCapture::ProgramCapture(const Traced& traced, const interpreter::CallArguments& arguments,
                               const TraceOptions& how, const Known& known)
    : RecordingHost(tracer::Recorded::kProgram),
      module_(traced.module),
      arguments_(arguments),
      context_(std::make_shared<ir::TraceContext>()),
      locator_(context_),
      counts_hooks_(known.counts_hooks),
      is_exact_(how.sharp_edges == SharpEdges::kExact),
      sharp_edges_(how.sharp_edges, locator_),
      custom_functions_(known.live, locator_, failed_),
      recorder_(ir::Trace(ir::TraceKind::kComputation, context_), *this),
      python_backwards_(recorder_, sharp_edges_, known.backwards, failed_),
      overrides_(traced.module),
      sizes_(recorder_, hooks_, numbers_, arguments, how, known.sizes),
      hooks_(recorder_, overrides_, unread_arrays_),
      backward_(recorder_, hooks_),
      tracker_(hooks_, make_options()),
      call_(traced, arguments, tracker_) {
  recorder_.data.full_graph = how.full_graph;
  recorder_.memory.shared_storages = known.shared;
  python_backwards_.tracker = &tracker_;
  numbers_->recorder = &recorder_;
  numbers_->are_plain = known.has_plain_numbers;
  hooks_.item_of = [this](PyObject* tensor) { return reads_.item(tensor); };
  hooks_.tensor_of_list = [this](PyObject* list) { return reads_.tensor_of(list); };
}

ProgramCapture::~ProgramCapture() { numbers_->recorder = nullptr; }

ir::SourceLocation ProgramCapture::definition() const {
  return has_returned_ ? call_.definition(*context_) : ir::SourceLocation();
}

std::shared_ptr<void> ProgramCapture::leave_program() { return std::make_shared<OutsideProgram>(locator_, failed_); }

std::vector<at::Tensor> ProgramCapture::derive(tracer::TraceNode& node, std::vector<at::Tensor> cotangents) {
  return backward_.derive(node, std::move(cotangents));
}

interpreter::TrackerOptions ProgramCapture::make_options() {
  interpreter::TrackerOptions options;
  options.locate = [this] { return locator_.here(); };
  options.treatment = [this](PyCodeObject* code) { return treatment_of(code, counts_hooks_); };
  options.is_library = is_library;
  options.note_type = [this](const PyTypeObject* type) { settings_.note_type(type); };
  options.admit_look = [this](PyObject* object, bool is_given) {
    return sharp_edges_.allows_look(object, is_given, tracker_);
  };
  options.unwrap = wrapped_callable;
  options.intercept = [this](PyObject* callable, const interpreter::NativeCall& call, PyObject** result) {
    // `print` shows what it gets without a further call.
    const auto look = [this](PyObject* argument) { return unread_arrays_.look_into(argument); };
    if (!unread_arrays_.is_empty() && name_of(callable) == "print" &&
        !std::all_of(call.arguments, call.arguments + total(call), look)) {
      return -1;
    }
    const bool may_defer = is_exact_ && !sharp_edges_.is_in_trial();
    if (const int status = may_defer ? deferred_.intercept(call, result) : 0; status != 0) return status;
    if (const int status = may_defer ? variables_.intercept(call, result) : 0; status != 0) return status;
    if (const int status = settings_.intercept(callable, call, result); status != 0) return status;
    if (settings_.reads_numpy()) deferred_.record_error_filters();
    if (!sharp_edges_.allows(callable, call, tracker_)) return -1;
    return reads_.intercept(callable, call, result);
  };
  options.convert = [this](PyObject* callable, const interpreter::NativeCall& call, PyObject** result) {
    const int status = reads_.convert_array(callable, call, result);
    return status != 0 ? status : arrays_.convert(tracker_, callable, call, result);
  };
  options.convert_index = [this](PyObject* tensor, PyObject* index) {
    return arrays_.convert_index(tracker_, tensor, index);
  };
  options.refuse_numbers = [this] {
    refuse_numbers();
    PyErr_SetString(PyExc_NotImplementedError, kNumbersAreRefused);
  };
  options.notice_handler = [this](PyObject* exception) {
    if (names_traced_number(exception)) refuse_numbers();
    note_caught_refusal(exception);
    if (PyErr_GivenExceptionMatches(exception, PyExc_Warning) != 0) deferred_.record_error_filters();
  };
  add_substitutes(options);
  reads_.add_substitutes(options);
  backward_.add_substitutes(options, tracker_);
  gradient_hooks_.add_substitutes(options);
  add_checkpoint_substitute(options, python_backwards_);
  custom_functions_.add_substitutes(options, python_backwards_);
  sharp_edges_.add_substitutes(options);
  if (is_exact_) deferred_.add_substitutes(options);
  if (is_exact_) random_.add_substitutes(options);
  add_tensor_facts(options);
  for (const char* name : {"simplefilter", "filterwarnings", "resetwarnings"}) {
    options.substitute(loaded_function("warnings", name).get(),
                       [this](PyObject* const*, std::size_t, PyObject*, PyObject**) {
                         settings_.note_warnings();
                         return 0;
                       });
  }
  return options;
}

void ProgramCapture::refuse_numbers() {
  numbers_->are_refused = true;
  tracer::note_refusal(kNumbersAreRefused);
}

std::optional<ir::Trace> ProgramCapture::record(const compile::Options& options) {
  std::optional<ir::Trace> trace;
  {
    const RestoreThreadState restore;
    const ContextVariables::Scope variables(variables_);
    state_ = restore.state();
    sizes_.watch(options, module_);
    const py::Ref result = interpret();
    if (!result) return std::nullopt;
    has_returned_ = true;
    if (const auto changed = settings_.restore()) refuse_change(*changed);
    grad_mode_after_ = c10::GradMode::is_enabled();
    require_restored(restore.state());
    require_same_variables(tracker_);
    trace = finish(result.get());
    if (!trace) return std::nullopt;
  }
  is_recorded_ = true;
  tracker_.journal().rollback();
  return trace;
}

py::Ref ProgramCapture::run_program() {
  const interpreter::SignalWindow window;
  return call_.run();
}

py::Ref ProgramCapture::interpret() {
  const TracingScope scope(module_, sizes_.shadows());
  const NumbersOfSizes numbers(numbers_);
  if (is_exact_ && !deferred_.begin()) return nullptr;
  if (!call_.admit_arguments()) return nullptr;
  const tracer::RecordTop record(recorder_);
  static_cast<void>(tracer::take_refusal());
  static_cast<void>(tracer::take_raised_for_data());
  py::Ref result = run_program();
  tracker_.leave_objects();
  // Guards of dispatch keys among the variables put back what held when they were made: here, while that holds.
  if (!result && PyErr_Occurred() != nullptr) release_frames_of_pending();
  if (!result && PyErr_Occurred() != nullptr) {
    py::Ref pending = take_error();
    if (names_traced_number(pending.get())) refuse_numbers();
    restore_error(std::move(pending));
  }
  // An error that the program raises after it has caught a refusal may follow from that.
  const std::string refused = tracer::take_refusal();
  if (!refused.empty() && (result || (!tracker_.is_interrupted() && raises_beside(refused)))) {
    PyErr_Clear();
    throw UserError(ErrorKind::kNotImplemented, refused);
  }
  const bool is_whole = result && gradient_hooks_.record(tracker_) && take_added_parameters(module_, hooks_, tracker_);
  return is_whole ? std::move(result) : py::Ref();
}

namespace {

/// Asks nobody about the sizes, which would make numbers of those that are symbols.
bool has_same_layout(const at::Tensor& traced, const at::Tensor& real) {
  const c10::TensorImpl* impl = traced.unsafeGetTensorImpl();
  return impl->sizes_default() == real.sizes() && impl->strides_default() == real.strides();
}

}  // namespace

void ProgramCapture::note_written_tensors() {
  for (const TorchHooks::InputState& input : hooks_.states()) {
    const at::Tensor& traced = unpack_tensor(input.traced.get());
    const py::Ref grad = py::Ref::steal(input.knows_grad ? wrap_tensor(traced.mutable_grad()) : nullptr);
    const bool has_new_grad = input.knows_grad && grad.get() != input.grad.get();
    const at::Tensor& real = unpack_tensor(input.real.get());
    if (!has_new_grad && traced.requires_grad() == real.requires_grad() && has_same_layout(traced, real)) continue;
    if (interpreter::Node* node = tracker_.provenance().find(input.real.get())) node->is_written = true;
  }
}

void ProgramCapture::require_no_seen_death() {
  const interpreter::Death death = tracker_.find_seen_death();
  if (!death.object) return;
  failed_ = death.location;
  throw UserError(ErrorKind::kNotImplemented,
                  std::string("thunder.jit: drops the last reference to an object of type '") +
                      Py_TYPE(death.object.get())->tp_name +
                      "' from outside of the function, which has a __del__ or weak references; drop it after the call");
}

void ProgramCapture::require_no_hook_number() {
  if (counts_hooks_ || !keeps_hook_number(structure_, first_hook_id_)) return;
  keeps_hook_number_ = true;
  throw UserError(
      ErrorKind::kNotImplemented,
      "thunder.jit: the function leaves a hook registered, or returns or stores its handle, whose number is "
      "another one at each call; register it outside, or remove it inside" +
          describe_source(registration_line(tracker_.journal(), first_hook_id_)));
}

std::optional<ir::Trace> ProgramCapture::finish(py::Borrowed result) {
  require_no_seen_death();
  random_.require_hidden_sources();
  interpreter::StructureBuilder builder(tracker_);
  if (!builder.add_result(result) || !builder.add_effects(tracker_.journal())) {
    const py::SavedError pending;
    // The handle of a hook cannot be made anew.
    if (failed_.file == nullptr) failed_ = registration_line(tracker_.journal(), first_hook_id_);
    return std::nullopt;
  }
  gradient_hooks_.require_on_computed(builder.outputs());
  if (!gradient_hooks_.leave_those_of_outputs(builder.outputs())) return std::nullopt;
  // Hooks first: `requires_grad_(False)` is among the effects of backwards, and a hook needs a tensor that requires
  // grad.
  if (!gradient_hooks_.add_effects(builder) || !backward_.add_effects(builder)) return std::nullopt;
  note_written_tensors();
  if (!python_backwards_.add_effects(builder) || !deferred_.add_effects(builder) || !variables_.add_effects(builder))
    return std::nullopt;
  gradient_hooks_.require_recorded(builder.outputs());
  auto overwritten = backward_.find_overwritten(builder.outputs(), python_backwards_, failed_);
  backward_.require_nothing_retained(tracker_);
  OutputPlanner planner(recorder_, sizes_.shadows());
  planner.note_overwritten(std::move(overwritten));
  for (const py::Ref& output : builder.outputs()) {
    if (is_tensor(output.get())) planner.note_view(output.get());
  }
  recorder_.memory.return_written();
  if (sizes_.shadows() != nullptr) sizes_.shadows()->return_written();
  for (const py::Ref& output : builder.outputs()) {
    if (is_traced_number(output.get())) {
      planner.add_number(value_of_number(output.get()));
      continue;
    }
    if (const auto size = dim_of_size_number(output.get())) {
      planner.add_size(*size, type_of_size(output.get()));
      continue;
    }
    require_plain_output(output.get(), tracker_);
    planner.add_tensor(output.get());
  }
  ir::ArgumentList outputs = planner.outputs();
  gradient_hooks_.require_made(outputs);
  structure_ = builder.finish();
  require_no_hook_number();
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

void ProgramCapture::fill(Specialization& specialization) {
  specialization.state = state_;
  specialization.context = context_;
  specialization.counts_hooks = counts_hooks_;
  specialization.grad_mode_after = grad_mode_after_;
  interpreter::GuardCompiler compiler(tracker_.provenance(), hooks_);
  specialization.guards = compiler.compile(arguments_.positional, arguments_.names);
  for (const py::Ref& input : hooks_.inputs()) {
    const at::Tensor& tensor = unpack_tensor(input.get());
    specialization.tensors.emplace_back(tensor, recorder_.tensors.is_offset_asked(tensor),
                                        recorder_.tensors.is_view_asked(tensor));
    if (is_distributed(input.get())) specialization.tensors.back().add_local_part(stored_part(input.get()));
    sizes_.free_sizes(input.get(), specialization.tensors.back());
  }
  specialization.strides = sizes_.strides();
  sizes_.describe(specialization);
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

ProgramCapture::Known ProgramCapture::known(const Known& before, bool failed) const {
  Known found{recorder_.memory.shared_storages,
              before.live || custom_functions_.wants_live(failed),
              python_backwards_.found(),
              sizes_.known(before.sizes, failed),
              before.has_plain_numbers || numbers_->are_refused,
              before.counts_hooks || keeps_hook_number_};
  // A backward that looks at a number may only compute where that is a constant.
  if (failed && found.sizes.constants != before.sizes.constants) found.backwards = before.backwards;
  // A backward that runs as Python from now on needed sizes only to be recorded.
  if (found.backwards != before.backwards) found.sizes = before.sizes;
  return found;
}

std::vector<tracer::WeakTensor> ProgramCapture::kept_tensors() const {
  std::vector<tracer::WeakTensor> tensors;
  recorder_.add_kept_tensors(tensors);
  return tensors;
}

}  // namespace thunder::dispatch
