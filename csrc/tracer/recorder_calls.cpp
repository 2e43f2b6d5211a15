#include <ATen/SavedTensorHooks.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "bridge/constant.h"
#include "bridge/convert.h"
#include "tracer/call_builder.h"
#include "tracer/composites.h"
#include "tracer/data_dependence.h"
#include "tracer/data_rewrites.h"
#include "tracer/evaluate.h"
#include "tracer/functional_form.h"
#include "tracer/known_contents.h"
#include "tracer/map_tensors.h"
#include "tracer/mutable_calls.h"
#include "tracer/operators.h"
#include "tracer/recorder.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"
#include "tracer/views.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

/// Returns the operator that is recorded in the place of `op`.
/// - `view` and `_reshape_alias` that arise below the program follow from strides that a kernel may not give exactly:
///   `reshape` asks for the same shape and copies where a view is impossible, instead of failing or reading wrongly.
/// - Trace tensors have no conjugate or negative bit, so that composites which resolve it do nothing: no value of a
///   trace may have it.
const c10::OperatorHandle& recorded_operator(const c10::OperatorHandle& op, Level level) {
  const ir::Operator& row = *operator_for(op);
  const char* form = operators::copying_form(row);
  const bool stays = form == nullptr || (level == Level::kTop && operators::has_fact(row, Fact::kRaisesForStrides));
  return stays ? op : handle_of(*find_operator(form, ""));
}

/// `repeat_interleave(self, repeats, dim, output_size)` of what requires grad, without the size.
bool is_unsized_repetition(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  return op.schema().argumentIndexWithName("output_size") == 3 && arguments[3].isNone() &&
         has_fact(op, Fact::kShapeFollowsData) && arguments[0].toTensor().requires_grad();
}

void share_version(const at::Tensor& view, const at::Tensor& parent) {
  if (view.is_inference() || parent.is_inference()) return;
  view.unsafeGetTensorImpl()->set_version_counter(parent.unsafeGetTensorImpl()->version_counter());
}

/// Where PyTorch itself calls one operation after the other: `torch._foreach_…` on the CPU, and tangents that are laid
/// out as their primals, views of zeros which as_strided may look behind.
bool is_on_cpu_or_composite(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::CUDA)) return true;
  const std::vector<at::Tensor> tensors = tensors_of(arguments);
  return std::ranges::all_of(tensors, [](const at::Tensor& tensor) { return tensor.is_cpu(); });
}

/// Resolves what is conjugate or negative by a bit: in the trace nothing is, but the program gets memory of its own.
bool resolves_view(const Recorder& recorder, const c10::OperatorHandle& op, const IValue& tensor) {
  const operators::FactSet facts = operators::facts_of(*operator_for(op));
  const bool resolves_conjugate = facts.has(Fact::kResolvesConjugate);
  if (!resolves_conjugate && !facts.has(Fact::kResolvesNegative)) return false;
  if (!tensor.isTensor() || trace_impl(tensor.toTensor()) == nullptr) return false;
  const LazyView view = lazy_view(tensor.toTensor());
  const at::Tensor real = recorder.tensors.real_behind(view.root);
  const bool is_part = view.is_part_of_conjugate(real.defined() && real.is_conj());
  return (resolves_conjugate ? view.conjugates : view.negatives) % 2 == 1 || (!resolves_conjugate && is_part);
}

}  // namespace

ir::ArgumentList Recorder::to_arguments(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  bridge::ArgumentReader reader;
  reader.tensor = [this](const at::Tensor& tensor) { return ir::Argument(value_of(tensor)); };
  reader.object = [this](const IValue& value) {
    if (const auto generator = find_generator(value)) return ir::Argument(*generator);
    return ir::Argument(bridge::add_value(*trace().context(), value));
  };
  ir::ArgumentList result;
  const auto& parameters = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    result.push_back(bridge::to_argument(arguments[i], *parameters[i].real_type(), reader));
  }
  return result;
}

namespace {

/// Makes the trace tensors that the results of a call are.
class ResultMaker {
 public:
  ResultMaker(Recorder& recorder, const c10::OperatorHandle& op, std::span<const IValue> arguments, bool keeps_history)
      : recorder_(recorder),
        op_(op),
        arguments_(arguments),
        tensors_(tensors_of(arguments)),
        may_be_view_(operator_for(op)->view),
        keeps_history_(keeps_history) {}

  /// Gives a result, and enters it among those of `symbol`.
  IValue make(const ResultTypes::Result& result, ir::BoundSymbol& symbol) {
    if (result.is_other) {
      if (keeps_history_) made_.emplace_back();
      symbol.results.emplace_back(ir::None{});
      return result.other;
    }
    if (!result.is_list) return make_tensor(result.tensors.front(), symbol.results);
    c10::List<at::Tensor> list;
    ir::ArgumentList values;
    for (const ResultType& element : result.tensors) list.push_back(make_tensor(element, values));
    symbol.results.emplace_back(std::move(values));
    return list;
  }

  /// Gives the tensors that were made their history: that of results of `symbol`.
  void attach_history(const ir::BoundSymbol& symbol) const {
    if (grad_fn_ != nullptr) recorder_.history.attach(symbol, tensors_, made_, *grad_fn_);
  }

 private:
  at::Tensor make_tensor(const ResultType& result, ir::ArgumentList& values) {
    const std::size_t index = position_++;
    if (result.type == nullptr) {
      if (keeps_history_) made_.emplace_back();
      values.emplace_back(ir::None{});
      return {};
    }
    auto state = std::make_shared<TraceState>();
    state->recorder = &recorder_;
    state->value = recorder_.trace().add_value(result.type);
    values.emplace_back(state->value);
    const auto& type = std::get<ir::TensorType>(*result.type);
    const bool is_view = result.alias_of >= 0 && may_be_view_;
    at::Tensor tensor =
        is_view ? make_view(tensors_[static_cast<std::size_t>(result.alias_of)], type, std::move(state), index)
                : make_trace_tensor(type, std::move(state));
    if (keeps_history_) {
      made_.push_back(tensor);
      if (type.requires_grad && grad_fn_ == nullptr) grad_fn_ = &result.grad_fn;
    } else if (type.requires_grad) {
      tensor.set_requires_grad(true);
    }
    return tensor;
  }

  [[nodiscard]] at::Tensor make_view(const at::Tensor& parent, const ir::TensorType& type,
                                     std::shared_ptr<TraceState> state, std::size_t index) const {
    state->writes_seen = root_of(*trace_impl(parent)->state()).writes;
    state->view = ViewOf{.parent = parent,
                         .op = op_,
                         .arguments = {arguments_.begin(), arguments_.end()},
                         .result = index,
                         .grad_mode = c10::GradMode::is_enabled(),
                         .inference_mode = c10::InferenceMode::is_enabled(),
                         .writes_before = state->writes_seen};
    trace_impl(parent)->state()->shown_by.push_back(state);
    std::optional<c10::InferenceMode> as_parent;  // a view of a normal tensor is one, that of an inference tensor too
    if (parent.is_inference() != c10::InferenceMode::is_enabled()) as_parent.emplace(parent.is_inference());
    at::Tensor view = make_trace_tensor(type, std::move(state), parent.storage());
    share_version(view, parent);
    return view;
  }

  Recorder& recorder_;
  const c10::OperatorHandle& op_;
  std::span<const IValue> arguments_;
  std::vector<at::Tensor> tensors_;  ///< among the arguments
  bool may_be_view_;
  bool keeps_history_;
  std::size_t position_ = 0;
  std::vector<at::Tensor> made_;          ///< one for each result, where history is kept
  const std::string* grad_fn_ = nullptr;  ///< the first result that requires grad has it
};

}  // namespace

std::vector<IValue> Recorder::record(const c10::OperatorHandle& op, std::span<const IValue> arguments,
                                     const ResultTypes& types, Level level) {
  ir::BoundSymbol symbol;
  // Operations that a transform makes arise below the program too.
  const bool is_of_transform = host.recorded() == Recorded::kTransformed;
  const c10::OperatorHandle& recorded = recorded_operator(op, is_of_transform ? Level::kBottom : level);
  symbol.op = operator_for(recorded);
  symbol.arguments = to_arguments(recorded, arguments.first(recorded.schema().arguments().size()));
  ResultMaker maker(*this, op, arguments, level == Level::kTop && this->level() == Level::kTop);
  std::vector<IValue> results;
  for (const ResultTypes::Result& result : types.results) results.push_back(maker.make(result, symbol));
  maker.attach_history(builder.add_here(std::move(symbol)));
  return results;
}

namespace {

/// Refuses what gives results another history in eager than a trace can give them.
void require_known_history(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  if (!c10::GradMode::is_enabled()) return;
  const std::vector<at::Tensor> tensors = tensors_of(arguments);
  const bool has_results = !op.schema().returns().empty() && !has_fact(op, Fact::kDetaches);
  if (has_results && std::ranges::any_of(tensors, is_hidden_leaf)) {
    refuse(
        op,
        "a view of a tensor that requires grad is used with gradients, which was made under torch.no_grad() or before "
        "requires_grad_(); detach it");
  }
  const bool requires_grad = std::ranges::any_of(tensors, [](const at::Tensor& t) { return t.requires_grad(); });
  if (requires_grad && at::SavedTensorDefaultHooks::get_hooks(/*ignore_is_tracing=*/true)) {
    refuse(op, "saved_tensors_hooks are not traced; enter them around the jitted function, which then runs in eager");
  }
}

/// Counts the calls that are being recorded inside of each other on this thread. Those of `sspaddmm` and
/// `sspaddmm.out` consist of each other.
class CallDepth {
 public:
  explicit CallDepth(const c10::OperatorHandle& op) : depth_(TraceSession::current().call_depth) {
    constexpr int kLimit = 100;
    if (depth_ >= kLimit) {
      throw UserError(ErrorKind::kNotImplemented, "thunder.jit: not supported inside a jitted function: " +
                                                      op.operator_name().name + ", whose parts call it again");
    }
    ++depth_;
  }
  ~CallDepth() { --depth_; }
  CallDepth(const CallDepth&) = delete;
  CallDepth& operator=(const CallDepth&) = delete;

 private:
  int& depth_;
};

/// Without a rule for its shapes a collective would run on tensors that have no data.
void require_shapes_of_collective(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) return;
  if (load_shapes_of_collectives != nullptr) load_shapes_of_collectives();
  if (op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) return;
  throw UserError(ErrorKind::kNotImplemented,
                  op.operator_name().name +
                      ": expected a collective whose shapes are known without running it (a meta kernel), got one "
                      "without; the functional ones (torch.ops._c10d_functional) have them");
}

/// The numbers of the program among arguments, as ones that the result's dtype can hold: eager, which has a number
/// where a trace has a tensor, raises for others.
void require_numbers_that_fit(Recorder& recorder, const c10::OperatorHandle& op, std::span<IValue> arguments,
                              const ResultTypes& types) {
  const operators::FactSet facts = operators::facts_of(*operator_for(op));
  const bool has_result = !types.results.empty() && !types.results[0].tensors.empty();
  const ir::TypePtr type = has_result ? types.results[0].tensors[0].type : nullptr;
  if (type == nullptr || facts.has(Fact::kWrapsNumbers)) return;
  const at::ScalarType dtype = bridge::to_torch(std::get<ir::TensorType>(*type).dtype);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor() || !is_trace_tensor(arguments[i].toTensor())) continue;
    at::Tensor number = recorder.data.held_number(arguments[i].toTensor(), dtype);
    const bool is_exponent = i == 1 && facts.has(Fact::kRaisesForNegative);
    if (number.defined() && is_exponent && c10::isIntegralType(dtype, /*includeBool=*/false))
      number = recorder.data.natural_number(number);
    if (!number.defined()) refuse(op, "a number that its result cannot hold");
    arguments[i] = std::move(number);
  }
}

}  // namespace

void Recorder::call(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level) {
  const CallDepth depth(op);
  const std::shared_ptr<void> outside = host.leave_program();
  const std::size_t count = op.schema().arguments().size();
  const operators::FactSet facts = operators::facts_of(*operator_for(op));
  if (facts.has_any(Fact::kOrdered | Fact::kWaits) && !host.may_communicate()) {
    throw UserError(ErrorKind::kNotImplemented, "thunder.jit: the collective " + op.operator_name().name +
                                                    ": communicate between processes outside of the function");
  }
  if (operators::communicates(*operator_for(op))) require_shapes_of_collective(op);
  if (level == Level::kTop && call_on_known_contents(op, stack)) return;
  for (IValue& argument : std::span(stack).last(count)) {
    argument = map_tensors(argument, [this](const at::Tensor& tensor) { return trace_tensor_of(tensor); });
  }
  if (level == Level::kTop && this->level() == Level::kTop) require_known_history(op, std::span(stack).last(count));
  if (count == 1 && resolves_view(*this, op, stack.back())) {
    stack.back() = CallBuilder(*this).clone(stack.back().toTensor());
  } else if (op.operator_name().name == "thunder::make_generator") {
    call_making_generator(op, stack);
  } else if (level == Level::kTop && facts.has(Fact::kReadsData)) {
    call_reading_number(*this, op, stack);
  } else if (level == Level::kTop && call_reading_lengths(*this, op, stack)) {
    return;
  } else if (level == Level::kTop && call_observing_errors(*this, op, stack)) {
    return;
  } else if (level == Level::kTop && gives_numbers(op)) {
    call_giving_numbers(*this, op, stack);
  } else if (facts.has(Fact::kIsRecordedAsParts) && is_on_cpu_or_composite(op, std::span(stack).last(count))) {
    if (level == Level::kTop) require_writable_targets(*this, op, std::span(stack).last(count));
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, stack);
  } else if (level == Level::kTop && inference.is_taken_apart(op, std::span(stack).last(count))) {
    call_parts(op, stack);
  } else if (op.schema().is_mutable()) {
    call_mutable(*this, op, stack, level);
  } else if (facts.has(Fact::kHasNoMemory)) {
    // The tangent of a mask, which formulas subtract from.
    constexpr std::ptrdiff_t kDtypeFromEnd = 4;
    IValue& dtype = *(stack.end() - kDtypeFromEnd);
    if (dtype.isInt() && dtype.toInt() == static_cast<std::int64_t>(at::kBool)) {
      dtype = static_cast<std::int64_t>(at::kByte);
    }
    call_functional(op, stack, level);
  } else {
    call_functional(op, stack, level);
  }
}

namespace {

using Positions = std::vector<std::int64_t>;

/// Places in memory of the elements of a view, from the first one of the tensor that has it.
std::unordered_set<std::int64_t> places_of(at::IntArrayRef sizes, at::IntArrayRef strides, std::int64_t first) {
  std::unordered_set<std::int64_t> places{first};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::unordered_set<std::int64_t> all;
    for (const std::int64_t place : places) {
      for (std::int64_t k = 0; k < sizes[i]; ++k) all.insert(place + k * strides[i]);
    }
    places = std::move(all);
  }
  return places;
}

/// A view of memory by positions, where the memory may begin before the tensor's first element.
struct MemoryView {
  at::Tensor tensor;
  Positions sizes, strides;
  std::int64_t first = 0;  ///< from the tensor's first element

  [[nodiscard]] std::int64_t end() const { return first + length_of(sizes, strides); }
  [[nodiscard]] static std::int64_t length_of(at::IntArrayRef sizes, at::IntArrayRef strides) {
    std::int64_t length = 1;
    for (std::size_t i = 0; i < sizes.size(); ++i) length += std::max<std::int64_t>(sizes[i] - 1, 0) * strides[i];
    return length;
  }
  /// Elements beside a tensor's own have no place in the trace: a write to them would be lost.
  [[nodiscard]] bool lies_in_the_tensor() const {
    if (c10::multiply_integers(sizes) == 0) return true;
    return first >= 0 && end() <= length_of(tensor.sizes(), tensor.strides()) && shows_only_the_tensor();
  }
  /// Between the elements of a tensor lie those of others, which the trace does not have once it was written to.
  [[nodiscard]] bool shows_only_the_tensor() const {
    constexpr std::int64_t kMost = 1 << 16;
    if (tensor.is_non_overlapping_and_dense()) return true;
    if (tensor.numel() > kMost || c10::multiply_integers(sizes) > kMost) return false;
    const auto own = places_of(tensor.sizes(), tensor.strides(), 0);
    return std::ranges::all_of(places_of(sizes, strides, first),
                               [&](std::int64_t place) { return own.contains(place); });
  }
  /// The memory from the tensor's first element to the view's last one.
  [[nodiscard]] at::Tensor memory(const CallBuilder& calls) const {
    return calls.call({"aten::as_strided", "", {tensor, Positions{end()}, Positions{1}, IValue()}});
  }
  /// The part of it that the view reaches.
  [[nodiscard]] at::Tensor part(const CallBuilder& calls, const at::Tensor& memory) const {
    return calls.call({"aten::slice", "Tensor", {memory, 0, first, end(), 1}});
  }
};

}  // namespace

namespace {

/// A position in memory, the last one of `arguments`, means something else in an input that begins elsewhere, unless it
/// is where the tensor begins: then nothing is said, which means that.
void note_position(TensorTable& tensors, std::vector<IValue>& arguments) {
  IValue& offset = arguments.back();
  if (!offset.isInt() || !arguments[0].isTensor()) return;
  const at::Tensor& tensor = arguments[0].toTensor();
  if (counts_from_tensors() && offset.toInt() == tensor.storage_offset()) {
    offset = IValue();
  } else {
    tensors.note_offset_asked(tensor);
  }
}

/// Has a call of `as_strided`, or its scatter, count from where the view begins, behind its tensor's first element.
void begin_at_view(const CallBuilder& calls, const MemoryView& view, std::vector<IValue>& arguments) {
  const at::Tensor shown = view.memory(calls);
  const at::Tensor part = view.part(calls, shown);
  const bool writes = arguments[1].isTensor();
  if (!writes) {
    arguments[0] = part;
    return;
  }
  const at::Tensor written =
      calls.call({"aten::as_strided_scatter", "", {part, arguments[1], arguments[2], arguments[3], IValue()}});
  arguments = {view.tensor, calls.call({"aten::slice_scatter", "", {shown, written, 0, view.first, view.end(), 1}}),
               Positions{view.end()}, Positions{1}, IValue()};
}

}  // namespace

void Recorder::lay_out_memory(std::vector<IValue>& arguments) {
  const at::Tensor& tensor = arguments[0].toTensor();
  const std::uint32_t write_count = root_of(*trace_impl(tensor)->state()).writes;
  at::Tensor root = tensor;
  while (const auto& view = trace_impl(root)->state()->view) {
    // Written to, it has the value that was written, which lies elsewhere: it is shown anew.
    if (write_count != 0) trace_impl(root)->state()->writes_seen = write_count - 1;
    root = at::Tensor(view->parent);
  }
  const ir::ValueId value = trace_impl(root)->state()->value;
  IValue& offset = arguments.back();
  const bool writes = arguments[1].isTensor();  // as_strided_scatter
  const std::size_t sizes = writes ? 2 : 1;
  const bool are_numbers = arguments[sizes].isIntList() && arguments[sizes + 1].isIntList();
  const auto view_of = [&](const at::Tensor& base) {
    const std::int64_t begin = offset.isInt() ? offset.toInt() : tensor.storage_offset();
    return MemoryView{base, arguments[sizes].toIntVector(), arguments[sizes + 1].toIntVector(),
                      begin - base.storage_offset()};
  };
  if (writes && are_numbers && !view_of(tensor).lies_in_the_tensor()) {
    throw UserError(ErrorKind::kNotImplemented,
                    "as_strided: expected a write to the tensor's own elements, got one beside them in its memory");
  }
  const bool is_callers = write_count == 0 || memory.is_first_value(value);
  const bool begins_memory = root.storage_offset() == 0;
  if (is_callers || !offset.isInt() || (begins_memory && root.is_non_overlapping_and_dense())) {
    arguments[0] = with_recorded_strides(tensor);
    return;
  }
  // Written memory may begin with its first element, or where the input's does: positions count from that element on.
  if (!are_numbers) {
    throw UserError(ErrorKind::kNotImplemented,
                    "as_strided: expected sizes and strides that are numbers after a write");
  }
  // A view may look at memory in front of it, whose gradient it has no part of.
  const bool is_in_front = view_of(tensor).first < 0;
  const bool takes_root = is_in_front && !writes && !tensor.requires_grad();
  MemoryView view = view_of(takes_root ? root : tensor);
  if ((view.first < 0 && !begins_memory) || !view_of(root).shows_only_the_tensor()) {
    throw UserError(
        ErrorKind::kNotImplemented,
        "as_strided: expected a part of the tensor's own memory after a write to it, got memory in front of "
        "it, or between its elements; write to a clone");
  }
  if (begins_memory) {
    arguments[0] = with_recorded_strides(tensor);
    return;
  }
  view.tensor = with_recorded_strides(view.tensor);
  offset = IValue();
  if (view.first == 0) {
    arguments[0] = view.tensor;
  } else {
    begin_at_view(CallBuilder(*this), view, arguments);
  }
}

void Recorder::call_parts(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  const std::vector<IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  const std::size_t below = stack.size() - count;
  try {
    call_composite(op, stack);
  } catch (const c10::Error& error) {
    if (!says_data_was_read(error.what()) || level() != Level::kTop) throw;
    stack.resize(below);
    KnownContents contents;
    for (const IValue& argument : arguments) {
      stack.push_back(data.with_contents(argument));
      if (stack.back().isTensor() && !is_trace_tensor(stack.back().toTensor())) {
        contents.add(stack.back().toTensor());
      }
    }
    call_composite(op, stack);
  }
}

void Recorder::call_functional(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level) {
  if (level == Level::kBottom && is_composite(op)) {
    call_parts(op, stack);
    return;
  }
  if (level == Level::kTop && writes_by_mask(op, std::span(stack).last(op.schema().arguments().size()))) {
    call_writing_by_mask(*this, op, stack);
    return;
  }
  const std::size_t count = op.schema().arguments().size();
  if (level == Level::kTop && !may_have_tangents()) {
    const auto given = std::span(stack).last(count);
    if (reads_by_mask(op, given)) return call_reading_by_mask(*this, op, stack);
    if (is_made_of_positions(op, given)) return call_parts(op, stack);
  }
  std::vector<IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  // In a part the results of a composite are not cut off from what follows them; its derivative wants their size.
  const bool wants_total = level == Level::kTop && may_have_tangents() && c10::GradMode::is_enabled() &&
                           is_unsized_repetition(op, arguments);
  if (wants_total) {
    const at::Tensor& repeats = arguments[1].toTensor();
    const at::Tensor& self = arguments[0].toTensor();
    const at::Tensor sum = CallBuilder(*this).sum(repeats);
    const std::int64_t each = arguments[2].isNone() ? self.numel() : self.size(arguments[2].toInt());
    arguments[3] = data.read_number(sum).toLong() * (repeats.numel() == 1 ? each : 1);
  }
  const operators::FactSet facts = operators::facts_of(*operator_for(op));
  const bool has_offset = op.schema().argumentIndexWithName("storage_offset").has_value();
  if (has_offset) note_position(tensors, arguments);
  const IValue last = arguments.empty() ? IValue() : arguments.back();
  if (facts.has(Fact::kReadsStrides) && has_offset) {
    lay_out_memory(arguments);
  } else if (facts.has(Fact::kReadsStrides)) {
    for (IValue& argument : arguments) {
      argument = map_tensors(argument, [this](const at::Tensor& tensor) {
        return tensor.defined() ? with_recorded_strides(tensor) : tensor;
      });
    }
  }
  const bool minds_strides = facts.has(Fact::kRaisesForStrides) && level == Level::kTop;
  if ((minds_strides && builder.has_any(Fact::kOtherStrides)) ||
      (facts.has(Fact::kNeedsResolvedConjugate) && builder.has_any(Fact::kMayConjugate))) {
    arguments[0] = with_recorded_strides(arguments[0].toTensor());
  }
  const auto types = inference.infer(op, arguments, level);
  if (types == nullptr) {
    call_parts(op, stack);
    return;
  }
  torch::jit::drop(stack, count);
  if (!types->has_tensors()) {
    if (types->results.empty()) record(op, arguments, *types, level);
    for (const ResultTypes::Result& result : types->results) stack.push_back(result.other);
    return;
  }
  if (level == Level::kTop) require_numbers_that_fit(*this, op, arguments, *types);
  std::vector<IValue> results = record(op, arguments, *types, level);
  if (types->from_data) data.check_shapes(results);
  // Shown anew, or written to, it is laid out again.
  const bool is_laid_out = facts.has(Fact::kReadsStrides) && operator_for(op)->view;
  if (is_laid_out) trace_impl(results[0].toTensor())->state()->view->arguments.back() = last;
  for (IValue& result : results) stack.push_back(std::move(result));
}

std::vector<IValue> Recorder::call_by_name(const char* name, const char* overload, std::vector<IValue> arguments) {
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  const auto& parameters = op.schema().arguments();
  for (std::size_t i = arguments.size(); i < parameters.size(); ++i) {
    arguments.push_back(parameters[i].default_value().value_or(IValue()));
  }
  call_functional(op, arguments, is_composite(op) ? Level::kBottom : Level::kTop);
  return arguments;
}

}  // namespace thunder::tracer
