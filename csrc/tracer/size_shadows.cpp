#include "tracer/size_shadows.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "ir/layout.h"
#include "ir/trace_sizes.h"
#include "tracer/data_sizes.h"
#include "tracer/evaluate.h"
#include "tracer/general_trace.h"
#include "tracer/gradients_at_sizes.h"
#include "tracer/kept_errors.h"
#include "tracer/layers_at_sizes.h"
#include "tracer/map_tensors.h"
#include "tracer/numbers.h"
#include "tracer/recording_scopes.h"
#include "tracer/size_arguments.h"
#include "tracer/size_notes.h"
#include "tracer/trace_node.h"
#include "tracer/trace_session.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

/// A symbol with fewer values is a number: few of them would tell little of the others.
constexpr std::int64_t kLeastRange = 4;
/// With fewer, the expression of a number is a guess.
constexpr std::size_t kLeastSamples = 5;

/// A trace's input for a symbol, as `tensor_for_int` (dispatch/call/number_input.h) makes it.
ir::TypePtr type_of_symbol(const ir::Dim& symbol) {
  ir::TensorType type;
  type.dtype = ir::Dtype::kUint8;
  type.sizes = {symbol, 0};
  type.strides = {1, 1};
  return ir::make_type(std::move(type));
}

ir::TypePtr with_sizes(ir::TensorType type, const ir::Dims& sizes, const ir::StrideRule& rule,
                       const ir::SymbolDim& symbol) {
  if (type.sizes == sizes && !rule.has_free()) return ir::make_type(std::move(type));
  type.sizes = sizes;
  type.strides = ir::strides_by(rule, sizes, symbol);
  return ir::make_type(std::move(type));
}

}  // namespace

/// Where the program is, its shadows are.
class SizeShadows::Host final : public RecordingHost {
 public:
  explicit Host(RecordingHost& program) : RecordingHost(Recorded::kProgram), program_(program) {}
  ir::SourceLocation locate() override { return program_.locate(); }
  std::shared_ptr<void> leave_program() override { return program_.leave_program(); }
  std::vector<at::Tensor> derive(TraceNode& node, std::vector<at::Tensor> cotangents) override {
    return program_.derive(node, std::move(cotangents));
  }

 private:
  RecordingHost& program_;
};

SizeShadows::SizeShadows(Recorder& program, std::vector<SizeSymbol> symbols, std::vector<ir::Condition> conditions,
                         std::vector<ir::Condition> layouts)
    : program_(program),
      symbols_(std::move(symbols)),
      layouts_(std::move(layouts)),
      host_(std::make_unique<Host>(program.host)),
      probes_(program.trace().blank(), *host_) {
  scope_->shadows = this;
  conditions.insert(conditions.end(), layouts_.begin(), layouts_.end());
  for (SizeSample& sample : choose_samples(symbols_, conditions)) add_shadow(std::move(sample));
  for (std::uint32_t i = 0; i < symbols_.size(); ++i) {
    if (symbols_[i].most != 0 && symbols_[i].most - symbols_[i].least < kLeastRange) pin(i);
  }
  if (shadows_.size() + 1 < kLeastSamples && !symbols_.empty()) {
    for (const std::uint32_t symbol : symbols_of_few_values(symbols_, conditions, kLeastSamples)) {
      pin(symbol, /*is_by_conditions=*/true);
    }
    if (pinned_.empty()) pin_all();
  }
  make_fit();
  for (std::uint32_t i = 0; i < symbols_.size(); ++i) {
    // Whatever depends on a symbol of two or three values is a multiple of it, or nearly so.
    if (!conditions.empty() && fit_->value_count(i) < kLeastSamples) pin(i, /*is_by_conditions=*/true);
  }
}

SizeShadows::~SizeShadows() { scope_->shadows = nullptr; }

void SizeShadows::add_shadow(SizeSample sample) {
  Shadow& shadow = shadows_.emplace_back();
  shadow.symbols = std::move(sample.values);
  shadow.only = sample.only;
  shadow.group = std::move(sample.group);
  shadow.recorder = std::make_unique<Recorder>(program_.trace().blank(), *host_);
  shadow.recorder->data.infer_elsewhere = [this, values = shadow.symbols, place = std::size_t{0}](
                                              const c10::OperatorHandle& op,
                                              std::span<const IValue> arguments) mutable {
    return data_types_at(values, place++, op, arguments);
  };
  shadow.recorder->data.read_elsewhere = [this, place = std::size_t{0}]() mutable {
    return program_.data.numbers_read().at(place++);
  };
  shadow.recorder->data.look_elsewhere = [this, place = std::size_t{0}]() mutable {
    return program_.data.contents_read().at(place++);
  };
}

ResultTypes SizeShadows::data_types_at(std::span<const std::int64_t> sample, std::size_t place,
                                       const c10::OperatorHandle& op, std::span<const IValue> arguments) const {
  const std::vector<DataSized>& all = program_.data.data_sized();
  THUNDER_CHECK(place < all.size() && all[place].op == op.operator_name().name, "tracer",
                "other sizes follow from data at other sizes");
  const DataSized& observed = all[place];
  ResultTypes types = observed.types;
  const std::optional<DataShapes> shapes = observed.sizes.empty() ? std::nullopt : data_shapes(op, arguments);
  if (!shapes) return types;
  const auto symbols = symbols_of_data ? symbols_of_data(place) : std::vector<std::optional<std::uint32_t>>();
  std::size_t tensor = 0, next = 0;
  for (ResultTypes::Result& result : types.results) {
    for (ResultType& each : result.tensors) {
      ir::Dims sizes;
      for (const std::optional<std::int64_t>& told : shapes->at(tensor++)) {
        const auto symbol = told || next >= symbols.size() ? std::nullopt : symbols[next];
        sizes.emplace_back(told ? *told : symbol ? sample[*symbol] : observed.sizes.at(next));
        if (!told) ++next;
      }
      const auto& type = std::get<ir::TensorType>(*each.type);
      const auto rule = ir::rule_of(bridge::hints(type.sizes), bridge::hints(type.strides));
      THUNDER_CHECK(rule.has_value(), "tracer", "strides of what follows from data are in no order");
      each.type = with_sizes(type, sizes, *rule, {});
    }
  }
  return types;
}

void SizeShadows::make_fit() {
  ir::SizeSamples samples(1);
  for (const SizeSymbol& symbol : symbols_) samples[0].push_back(symbol.traced);
  for (const Shadow& shadow : shadows_) samples.push_back(shadow.symbols);
  fit_ = std::make_unique<ir::SizeFit>(std::move(samples));
  for (std::uint32_t i = 0; i < symbols_.size(); ++i) {
    const std::optional<ir::Dim> other = fit_->add(ir::Dim::symbol(i, symbols_[i].traced));
    // The conditions leave it one value: sizes are that number, and no more the symbol.
    if (other && other->is_concrete() && !wants_samples_) pin(i, /*is_by_conditions=*/true);
  }
  for (const ir::Dim& dim : expressions_) fit_->add(dim);
}

void SizeShadows::add_input(const at::Tensor& traced, std::span<const std::optional<std::uint32_t>> symbols,
                            const ir::StrideRule& rule) {
  const Inside inside(*this);
  const TraceTensorImpl* impl = trace_impl(traced);
  kept_.emplace_back(traced.getIntrusivePtr());
  for (Shadow& shadow : shadows_) {
    if (shadow.tensors.contains(impl)) continue;
    ir::Dims sizes;
    for (std::int64_t i = 0; i < traced.dim(); ++i) {
      const auto symbol = symbols.empty() ? std::nullopt : symbols[static_cast<std::size_t>(i)];
      sizes.emplace_back(symbol ? shadow.symbols[*symbol] : traced.size(i));
    }
    const std::string& name = program_.trace().value(impl->state()->value).name;
    const auto at_sample = [&](std::uint32_t symbol) { return ir::Dim(shadow.symbols[symbol]); };
    const ir::TypePtr type = with_sizes(bridge::type_of(traced), sizes, rule, at_sample);
    shadow.tensors.emplace(impl, shadow.recorder->add_input(type, name));
  }
  const auto is_symbol = [](const std::optional<std::uint32_t>& symbol) { return symbol.has_value(); };
  if (std::ranges::none_of(symbols, is_symbol) && !rule.has_free()) return;
  trace_impl(traced)->watch_sizes();
  // Sizes of views, and of what is flattened, are made of these.
  ir::Dims dims;
  for (std::int64_t i = 0; i < traced.dim(); ++i) {
    const auto symbol = symbols[static_cast<std::size_t>(i)];
    dims.push_back(symbol ? dim_of_symbol(*symbol) : ir::Dim(traced.size(i)));
  }
  input_dims_.emplace(impl, dims);
  note_strides(*impl, rule);
  const ir::TypePtr type = with_sizes(bridge::type_of(traced), dims, rule, dims_of_symbols());
  for (const ir::Dim& stride : std::get<ir::TensorType>(*type).strides) fit_->add(stride);
  fit_->add(ir::product_of(dims));
}

ir::SymbolDim SizeShadows::dims_of_symbols() {
  return [this](std::uint32_t symbol) { return dim_of_symbol(symbol); };
}

void SizeShadows::note_strides(const TraceTensorImpl& input, const ir::StrideRule& rule) {
  const std::vector<ir::ValueId>& inputs = program_.trace().inputs;
  const auto place = static_cast<std::uint32_t>(std::ranges::find(inputs, input.state()->value) - inputs.begin());
  if (std::ranges::find(stride_inputs_, place, &StrideInput::input) != stride_inputs_.end()) return;
  for (std::uint32_t dim = 0; dim < rule.steps.size(); ++dim) {
    if (rule.steps[dim].kind != ir::StrideRule::Kind::kFree) continue;
    stride_inputs_.push_back({place, dim, static_cast<std::uint32_t>(rule.steps[dim].number)});
  }
}

bool SizeShadows::is_outside() const { return depth_ == 0; }

ir::SourceLocation SizeShadows::locate() const {
  const std::shared_ptr<void> outside = program_.host.leave_program();
  return program_.host.locate();
}

void SizeShadows::pin(std::uint32_t symbol, bool is_by_conditions) {
  if (pinned_.insert(symbol).second) reasons_.push_back({symbol, lost_at_ ? *lost_at_ : locate(), is_by_conditions});
}

void SizeShadows::pin_all() {
  for (std::uint32_t i = 0; i < symbols_.size(); ++i) pin(i);
}

void SizeShadows::pin_most() {
  for (std::uint32_t i = 0; i < symbols_.size(); ++i) {
    if (!symbols_[i].is_first) pin(i);
  }
  if (pinned_.empty()) pin_all();
}

bool SizeShadows::pin_changed(const Shadow& shadow) {
  if (shadow.only) pin(*shadow.only);
  to_tell_apart_.insert(shadow.group.begin(), shadow.group.end());
  return shadow.only || !shadow.group.empty();
}

void SizeShadows::lose(Shadow& shadow) {
  shadow.is_lost = true;
  if (!lost_at_) lost_at_ = locate();
  // With few sizes left the program gets numbers, which mean nothing at other sizes: what fails then is not to blame
  // where another attempt follows.
  if (!wants_samples_ && !(gave_numbers_ && is_traced_again())) pin_changed(shadow);
}

std::vector<ir::Dims> SizeShadows::shapes_of(std::span<const IValue> arguments) {
  std::vector<ir::Dims> shapes;
  for (const at::Tensor& tensor : tensors_of(arguments)) {
    const TraceTensorImpl* impl = trace_impl(tensor);
    const bool is_watched = impl != nullptr && impl->is_watched();
    const auto dims = is_watched ? dims_of(*impl) : std::optional(bridge::to_dims(tensor.sizes()));
    if (!dims) return {};
    shapes.push_back(*dims);
  }
  return shapes;
}

void SizeShadows::exclude(std::span<Shadow* const> failed, std::span<const IValue> arguments) {
  const std::vector<std::int64_t> traced = fit_->samples()[0];
  std::vector<ir::SymbolValues> fitting{traced}, failing;
  for (const Shadow& shadow : shadows_) {
    const bool has_failed = std::ranges::find(failed, &shadow) != failed.end();
    (has_failed ? failing : fitting).emplace_back(shadow.symbols);
  }
  const bool is_known = !is_any_lost() && !gave_numbers_;
  auto conditions = is_known ? signs_between(expressions_, fitting, failing) : std::nullopt;
  if (is_known && !conditions) conditions = bounds_between(fitting, failing);
  if (is_known && !conditions) conditions = equalities_between(shapes_of(arguments), fitting, failing);
  if (!conditions) {
    for (Shadow* shadow : failed) lose(*shadow);
    return;
  }
  for (const ir::Condition& condition : *conditions) assume(condition);
}

bool SizeShadows::is_any_lost() const {
  return std::ranges::any_of(shadows_, [](const Shadow& shadow) { return shadow.is_lost; });
}

bool SizeShadows::tells_sizes() const { return !is_any_lost() && shadows_.size() + 1 >= kLeastSamples; }

void SizeShadows::settle() {
  if (!is_traced_again() && (is_any_lost() || shadows_.size() + 1 < kLeastSamples)) pin_all();
}

// --- conditions and pins

void SizeShadows::note_expression(const ir::Dim& dim) {
  if (dim.is_concrete() || std::ranges::find(expressions_, dim) != expressions_.end()) return;
  expressions_.push_back(dim);
  const std::optional<ir::Dim> other = fit_->add(dim);
  if (!other || wants_samples_ || !tells_sizes()) return;
  // Numbers of one are taken for the other.
  for (const ir::Condition& condition : ir::equality_of(dim, *other)) assume(condition);
}

namespace {

/// The condition that leaves an expression its value, where that is a remainder by a number, but for what is added to
/// it: as many programs as there are remainders are for all sizes.
std::optional<ir::Condition> condition_of_remainder(const ir::Dim& dim, ir::SymbolValues traced) {
  constexpr std::int64_t kMostRemainders = 64;
  for (const ir::SizeFunction& function : ir::functions_in(dim)) {
    const auto& [operation, left, right] = function;
    const bool divides = operation == ir::SizeOperation::kFloorDivide && right.is_concrete();
    if (!divides || right.hint < 2 || right.hint > kMostRemainders) continue;
    if (!(dim - floor_remainder(left, right)).is_concrete()) continue;
    ir::Dim multiple = left - ir::Dim(ir::evaluate(floor_remainder(left, right), traced));
    multiple.hint = ir::evaluate(multiple, traced);
    return ir::Condition{ir::Condition::Kind::kDivisible, multiple, right};
  }
  return std::nullopt;
}

/// Whether an expression is the same number at many values of a symbol around the one that was traced, as a count of
/// chunks is: a program for that number is for all of them.
bool has_many_values(const ir::Dim& dim, std::uint32_t symbol, ir::SymbolValues traced) {
  constexpr std::int64_t kAround = 64;
  constexpr std::size_t kLeastValues = 8;
  std::vector<std::int64_t> values(traced.begin(), traced.end());
  const std::int64_t number = ir::evaluate(dim, values);
  std::size_t count = 0;
  for (std::int64_t value = std::max<std::int64_t>(2, traced[symbol] - kAround); value <= traced[symbol] + kAround;
       ++value) {
    values[symbol] = value;
    const ir::Condition is_same{ir::Condition::Kind::kEqual, dim, number};
    if (ir::holds(is_same, values)) ++count;
  }
  return count >= kLeastValues;
}

}  // namespace

void SizeShadows::pin_symbols_of(const ir::Dim& dim) {
  const auto traced = fit_->samples()[0];
  if (const auto condition = condition_of_remainder(dim, traced)) return assume(*condition);
  std::vector<std::uint32_t> few, symbols;
  ir::add_symbols(dim, symbols);
  std::ranges::copy_if(symbols, std::back_inserter(few),
                       [&](std::uint32_t symbol) { return !has_many_values(dim, symbol, traced); });
  for (const std::uint32_t symbol : few) pin(symbol);
  if (few.empty() && !symbols.empty()) add_condition({ir::Condition::Kind::kEqual, dim, ir::evaluate(dim, traced)});
}

void SizeShadows::assume(const ir::Condition& condition) {
  if (is_certain(condition) || gave_numbers_) return;
  using Kind = ir::Condition::Kind;
  if (condition.kind == Kind::kEqual && (condition.left.is_concrete() || condition.right.is_concrete())) {
    return pin_symbols_of(condition.left.is_concrete() ? condition.right : condition.left);
  }
  add_condition(condition);
}

void SizeShadows::add_condition(const ir::Condition& condition) {
  if (gave_numbers_ || std::ranges::find(assumed_, condition, &Assumed::condition) != assumed_.end()) return;
  assumed_.push_back({condition, locate()});
  const std::size_t dropped =
      std::erase_if(shadows_, [&](const Shadow& shadow) { return !ir::holds(condition, shadow.symbols); });
  if (dropped == 0) return;
  wants_samples_ = true;
  make_fit();
}

bool SizeShadows::keep_within_range(const ir::Dim& dim) {
  constexpr double kMostTraced = 0x1p50, kMost = 0x1p62, kMostOfTensors = 0x1p24;
  if (dim.is_concrete()) return true;
  const auto traced = fit_->samples()[0];
  const auto at = [&](double times) {
    return ir::magnitude(dim, [&](std::uint32_t symbol) { return times * static_cast<double>(traced[symbol]); });
  };
  const double here = at(1);
  if (here > kMostTraced) return false;
  const auto largest = [&](std::uint32_t symbol) {
    return ints_.contains(symbol) || symbols_[symbol].is_stride ? kMost : kMostOfTensors;
  };
  if (ir::magnitude(dim, largest) <= kMost) return true;
  std::int64_t times = 1;
  while (at(2.0 * static_cast<double>(times)) <= kMost) times *= 2;
  if (times < 4) return false;
  std::vector<std::uint32_t> symbols;
  ir::add_symbols(dim, symbols);
  for (const std::uint32_t symbol : symbols) {
    const ir::Dim size = ir::Dim::symbol(symbol, traced[symbol]);
    assume({ir::Condition::Kind::kAtMost, size, times * traced[symbol]});
  }
  return true;
}

void SizeShadows::require_divisor(const ir::Dim& divisor) {
  const auto comparison = divisor.hint > 0 ? SizeComparison::kGreater : SizeComparison::kLess;
  for (const ir::Condition& condition : compare_sizes(divisor, comparison, 0).conditions) assume(condition);
}

void SizeShadows::note_operation(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  const auto sizes_of = [&](const at::Tensor& tensor) -> std::optional<ir::Dims> {
    const TraceTensorImpl* impl = trace_impl(tensor);
    if (impl != nullptr && impl->is_watched()) return dims_of(*impl);
    const Inside inside(*this);
    return bridge::to_dims(tensor.sizes());
  };
  const SizeNotes notes = notes_on(op, arguments, sizes_of, fit_->samples()[0]);
  for (const ir::Condition& condition : notes.conditions) assume(condition);
  for (const ir::Dim& expression : notes.expressions) note_expression(expression);
}

std::vector<IValue> SizeShadows::at_traced_sizes(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  note_size_arguments(op, arguments, *this,
                      [this](const IValue& tensor, std::int64_t dim) { return size_at(tensor, dim); });
  if (tells_sizes()) note_operation(op, arguments);
  std::vector<IValue> result;
  for (const IValue& argument : arguments) result.push_back(with_numbers(argument, std::nullopt));
  return result;
}

// --- other sizes

void SizeShadows::note_failure(std::span<const IValue> arguments) {
  for (const at::Tensor& tensor : tensors_of(arguments)) {
    const TraceTensorImpl* impl = trace_impl(tensor);
    if (impl != nullptr && impl->is_watched()) note_read(*impl);
  }
}

at::Tensor SizeShadows::tensor_in(const Shadow& shadow, const at::Tensor& tensor) const {
  if (!tensor.defined()) return tensor;
  if (is_layered(tensor)) {
    const auto made = shadow.tensors.find(tensor.unsafeGetTensorImpl());
    if (made != shadow.tensors.end()) return made->second;
    return with_layer_of(tensor, [&](const at::Tensor& below) { return tensor_in(shadow, below); });
  }
  const c10::TensorImpl* impl = trace_impl(tensor);
  if (impl == nullptr) {
    const auto input = program_.tensors.find_input(tensor);
    if (!input) return tensor;
    impl = trace_impl(*input);
  }
  const auto found = shadow.tensors.find(impl);
  if (found == shadow.tensors.end()) {
    throw UserError(ErrorKind::kNotImplemented, "a tensor of the program is not known at other sizes");
  }
  // `requires_grad_()` is no operation.
  const at::Tensor& other = found->second;
  if (tensor.is_leaf() && other.is_leaf() && tensor.requires_grad() != other.requires_grad()) {
    other.set_requires_grad(tensor.requires_grad());
  }
  return other;
}

namespace {

autograd::NodePointer node_of(const at::Tensor& tensor) {
  const torch::autograd::AutogradMeta* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta == nullptr ? autograd::NodePointer() : meta->grad_fn_;
}

}  // namespace

void SizeShadows::pair_nodes(Shadow& shadow, const autograd::NodePointer& node, const autograd::NodePointer& other) {
  std::vector<std::pair<autograd::NodePointer, autograd::NodePointer>> pending{{node, other}};
  while (!pending.empty()) {
    const auto [left, right] = std::move(pending.back());
    pending.pop_back();
    if (as_trace_node(left.get()) == nullptr || as_trace_node(right.get()) == nullptr) continue;
    if (!shadow.nodes.try_emplace(left.get(), right).second) continue;
    kept_nodes_.push_back(left);
    const std::size_t count = std::min(left->next_edges().size(), right->next_edges().size());
    for (std::size_t i = 0; i < count; ++i) {
      pending.emplace_back(left->next_edges()[i].function, right->next_edges()[i].function);
    }
  }
}

void SizeShadows::pair(Shadow& shadow, const IValue& result, const IValue& other) {
  if (result.isTensor() && is_layered(result.toTensor())) {
    const at::Tensor& layered = result.toTensor();
    THUNDER_CHECK(other.isTensor() && is_layered(other.toTensor()), "tracer",
                  "a result is of a level at some sizes only");
    shadow.tensors.insert_or_assign(layered.unsafeGetTensorImpl(), other.toTensor());
    kept_.emplace_back(layered.getIntrusivePtr());
    pair(shadow, below_layer(layered), below_layer(other.toTensor()));
  } else if (result.isTensor() && other.isTensor()) {
    TraceTensorImpl* impl = trace_impl(result.toTensor());
    const bool is_traced = trace_impl(other.toTensor()) != nullptr;
    if (impl == nullptr && !is_traced) return;
    THUNDER_CHECK(impl != nullptr && is_traced, "tracer", "a result is of the trace at some sizes only");
    shadow.tensors.insert_or_assign(impl, other.toTensor());
    kept_.emplace_back(result.toTensor().getIntrusivePtr());
    pair_nodes(shadow, node_of(result.toTensor()), node_of(other.toTensor()));
    if (!is_laid_out_alike(result.toTensor(), other.toTensor())) impl->watch_sizes();
    // Below a level of `torch.func`, a result may be a view of what the program does not get.
    const auto& view = impl->state()->view;
    const auto& view_there = trace_impl(other.toTensor())->state()->view;
    if (view && view_there && !shadow.tensors.contains(trace_impl(view->parent))) {
      pair(shadow, view->parent, view_there->parent);
    }
  } else if (result.isList() && other.isList()) {
    const auto lefts = result.toListRef();
    const auto rights = other.toListRef();
    THUNDER_CHECK(lefts.size() == rights.size(), "tracer", "there are other results at other sizes");
    for (std::size_t i = 0; i < lefts.size(); ++i) pair(shadow, lefts[i], rights[i]);
  } else {
    THUNDER_CHECK(is_equal_value(result, other), "tracer", "a result is another one at other sizes");
  }
}

void SizeShadows::repeat(Shadow& shadow, const c10::OperatorHandle& op, std::span<const IValue> arguments,
                         std::span<const IValue> results) {
  torch::jit::Stack stack;
  for (const IValue& argument : arguments) {
    stack.push_back(with_numbers(
        map_tensors(argument, [&](const at::Tensor& tensor) { return tensor_in(shadow, tensor); }), shadow.symbols));
  }
  const RecordTop recording(*shadow.recorder);
  const LayersAtSizes layers(shadow.symbols);
  op.callBoxed(stack);
  THUNDER_CHECK(stack.size() == results.size(), "tracer", "there are other results at other sizes");
  for (std::size_t i = 0; i < stack.size(); ++i) pair(shadow, results[i], stack[i]);
}

void SizeShadows::follow(const c10::OperatorHandle& op, std::span<const IValue> arguments,
                         std::span<const IValue> results) {
  const Inside inside(*this);
  std::vector<Shadow*> failed;
  for (Shadow& shadow : shadows_) {
    if (shadow.is_lost) continue;
    std::string refusal = take_refusal();
    try {
      repeat(shadow, op, arguments, results);
    } catch (const std::exception&) {
      if (forget_python_error != nullptr) forget_python_error();
      failed.push_back(&shadow);
    }
    static_cast<void>(take_refusal());
    if (!refusal.empty()) note_refusal(std::move(refusal));
  }
  if (!failed.empty()) exclude(failed, arguments);
  for (const at::Tensor& tensor : tensors_of(results)) {
    // Few sizes are left to show which ones depend on symbols.
    if (TraceTensorImpl* impl = trace_impl(tensor); impl != nullptr && !tells_sizes()) impl->watch_sizes();
    if (is_layered(tensor)) note_read(*tensor.unsafeGetTensorImpl());
    require_sizes_of_two(tensor);
  }
  if (std::ranges::none_of(tensors_of(arguments), is_layered)) probe(op, arguments, results);
}

void SizeShadows::note_layer(const at::Tensor& layered) {
  if (!is_layered(layered)) return;
  for (Shadow& shadow : shadows_) {
    if (!shadow.is_lost) shadow.tensors.insert_or_assign(layered.unsafeGetTensorImpl(), tensor_in(shadow, layered));
  }
  kept_.emplace_back(layered.getIntrusivePtr());
  note_read(*layered.unsafeGetTensorImpl());
}

// --- sizes that are next to others

void SizeShadows::probe(const c10::OperatorHandle& op, std::span<const IValue> arguments,
                        std::span<const IValue> results) {
  const auto can_probe = [&] { return !is_traced_again() && tells_sizes(); };
  if (!can_probe()) return;
  SizedCall call{op, arguments, {}, {}, {}};
  for (const at::Tensor& tensor : tensors_of(arguments)) {
    const std::optional<ir::TensorType>& type = call.types.emplace_back(general_type(tensor));
    for (std::size_t i = 0; type && i < type->strides.size(); ++i) {
      const auto symbol = ir::symbol_of(type->strides[i]);
      if (symbol && symbols_[*symbol].is_stride) call.strides.push_back(type->strides[i]);
    }
  }
  for (const at::Tensor& tensor : tensors_of(results)) {
    const std::optional<ir::TensorType> type = general_type(tensor);
    if (type) std::ranges::copy(type->sizes, std::back_inserter(call.results));
  }
  if (!can_probe()) return;
  const auto admits = [&](ir::SymbolValues values) {
    for (std::size_t i = 0; i < symbols_.size(); ++i) {
      if (values[i] < symbols_[i].least || (symbols_[i].most != 0 && values[i] > symbols_[i].most)) return false;
    }
    const auto holds = [&](const ir::Condition& condition) { return ir::holds(condition, values); };
    return std::ranges::all_of(layouts_, holds) && std::ranges::all_of(assumed_, holds, &Assumed::condition);
  };
  const auto are_alike = constants_alike(*program_.trace().context());
  for (const ir::Condition& condition : probes_.look_at(call, *fit_, admits, are_alike)) assume(condition);
}

void SizeShadows::follow_data(const std::function<at::Tensor(Recorder& there, const FindTensor& find)>& step,
                              const at::Tensor& result) {
  const Inside inside(*this);
  for (Shadow& shadow : shadows_) {
    if (shadow.is_lost) continue;
    try {
      const at::Tensor other =
          step(*shadow.recorder, [&](const at::Tensor& tensor) { return tensor_in(shadow, tensor); });
      if (result.defined()) pair(shadow, result, other);
    } catch (const std::exception&) {
      lose(shadow);
    }
  }
}

// --- backwards

namespace {

bool is_of_outer_layer(const at::Tensor& tensor) { return tensor.defined() && trace_impl(tensor) == nullptr; }

constexpr const char* kAnotherBackward = "a backward is another one at other sizes";

/// Whether a gradient is one for an input of a node, or for none.
bool is_of_size_of_input(const TraceNode& node, std::size_t i, const at::Tensor& gradient) {
  const ir::TensorType* input = node.recorder().trace().tensor_type(node.inputs()[i]);
  return !gradient.defined() || input == nullptr || input->sizes == bridge::type_of(gradient).sizes;
}

}  // namespace

std::vector<at::Tensor> SizeShadows::derive(TraceNode& node, std::vector<at::Tensor> cotangents) {
  if (std::ranges::any_of(cotangents, is_of_outer_layer)) {
    pin_all();
    return program_.host.derive(node, std::move(cotangents));
  }
  const Inside inside(*this);
  std::vector<at::Tensor> gradients = program_.host.derive(node, cotangents);
  const auto differs = [&](const Shadow& shadow, std::uint32_t symbol) {
    return shadow.symbols[symbol] != fit_->samples()[0][symbol];
  };
  // A derivative that goes over the steps of a sequence is another one at each length: once that is known, it is not
  // made for thousands of steps.
  std::vector<std::uint32_t> failed;
  const auto derive_there = [&](Shadow& shadow) {
    if (shadow.is_lost) return;
    try {
      const bool is_another = std::ranges::any_of(failed, [&](std::uint32_t each) { return differs(shadow, each); });
      THUNDER_CHECK(!is_another, "tracer", kAnotherBackward);
      derive_in(shadow, node, cotangents, gradients);
    } catch (const std::exception&) {
      if (forget_python_error != nullptr) forget_python_error();
      if (shadow.only) failed.push_back(*shadow.only);
      lose(shadow);
    }
  };
  for (const bool changes_one : {true, false}) {
    for (Shadow& shadow : shadows_) {
      if (shadow.only.has_value() == changes_one) derive_there(shadow);
    }
  }
  return gradients;
}

void SizeShadows::derive_in(Shadow& shadow, const TraceNode& node, std::span<const at::Tensor> cotangents,
                            std::span<const at::Tensor> gradients) {
  const auto found = shadow.nodes.find(&node);
  TraceNode* const other = found == shadow.nodes.end() ? nullptr : as_trace_node(found->second.get());
  if (other == nullptr || other->inputs() != node.inputs() || other->results() != node.results()) {
    throw UserError(ErrorKind::kNotImplemented, "an operation of the program is not known at other sizes");
  }
  const RecordTop recording(*shadow.recorder);
  std::vector<at::Tensor> given;
  for (const at::Tensor& cotangent : cotangents) given.push_back(tensor_in(shadow, cotangent));
  const std::vector<at::Tensor> made = program_.host.derive(*other, std::move(given));
  THUNDER_CHECK(made.size() == gradients.size(), "tracer", kAnotherBackward);
  for (std::size_t i = 0; i < made.size(); ++i) {
    THUNDER_CHECK(made[i].defined() == gradients[i].defined(), "tracer", kAnotherBackward);
    if (!made[i].defined()) continue;
    const bool is_alike = shadow.recorder->value_of(made[i]) == program_.value_of(gradients[i]) &&
                          is_of_size_of_input(*other, i, made[i]) == is_of_size_of_input(node, i, gradients[i]);
    THUNDER_CHECK(is_alike, "tracer", kAnotherBackward);
    pair(shadow, gradients[i], made[i]);
  }
}

void SizeShadows::return_written() {
  follow_data([](Recorder& there, const FindTensor& /*find*/) {
    there.memory.return_written();
    return at::Tensor();
  });
}

ir::SymbolValues SizeShadows::sizes_in(const Recorder& there) const {
  return std::ranges::find(shadows_, &there, [](const Shadow& shadow) { return shadow.recorder.get(); })->symbols;
}

// Operations do other things with what is empty or broadcasts: a size that is zero or one stays so, or never becomes
// it.
void SizeShadows::require_sizes_of_two(const at::Tensor& tensor) {
  const TraceTensorImpl* impl = trace_impl(tensor);
  if (impl == nullptr || !impl->is_watched() || !tells_sizes()) return;
  const std::optional<ir::Dims> dims = dims_of(*impl);
  for (std::size_t i = 0; dims && i < dims->size(); ++i) {
    const ir::Dim& dim = (*dims)[i];
    if (dim.is_concrete()) continue;
    const auto is_small = [&](const Shadow& shadow) { return ir::evaluate(dim, shadow.symbols) < 2; };
    if (dim.hint < 2) {
      for (const ir::Condition& condition : ir::equality_of(dim, dim.hint)) assume(condition);
    } else if (std::ranges::any_of(shadows_, is_small)) {
      assume({ir::Condition::Kind::kAtMost, 2, dim});
    }
  }
}

std::optional<std::vector<std::vector<SizeInCall>>> SizeShadows::sizes_in_views(const at::Tensor& tensor,
                                                                                std::span<const ViewOf* const> views) {
  const Inside inside(*this);
  std::vector<at::Tensor> shown;
  for (const Shadow& shadow : shadows_) {
    const auto found = shadow.tensors.find(tensor.unsafeGetTensorImpl());
    if (shadow.is_lost || found == shadow.tensors.end()) return std::nullopt;
    shown.push_back(found->second);
  }
  return tracer::sizes_in_views(views, std::move(shown), *fit_);
}

// --- the trace for all sizes

std::optional<ir::Trace> SizeShadows::generalize(const ir::Trace& trace) {
  const Inside inside(*this);
  settle();
  if (is_traced_again()) return std::nullopt;
  const ir::AreAlike are_alike = constants_alike(*trace.context());
  try {
    std::vector<ir::Trace> traces{trace};
    for (Shadow& shadow : shadows_) {
      ir::Trace other = shadow.recorder->finish(trace.outputs);
      keep_errors(other);
      traces.push_back(std::move(other));
    }
    ir::Trace result = generalize_with_gradients(traces, *fit_, are_alike);
    drop_unused_numbers(result);
    ir::require_sizes_of_two(result, ir::Trace(result));
    for (const StrideInput& stride : stride_inputs_) {
      result.add_input(type_of_symbol(dim_of_symbol(stride.symbol)), "stride");
    }
    for (const Assumed& assumed : assumed_) result.conditions.push_back(assumed.condition);
    ir::add_known_conditions(layouts_, result);
    for (const ir::SymbolSource& source : ir::symbol_sources(result)) {
      const std::uint32_t i = source.symbol;
      const ir::Dim symbol = ir::Dim::symbol(i, symbols_[i].traced);
      using Kind = ir::Condition::Kind;
      if (symbols_[i].least > 2) result.conditions.push_back({Kind::kAtMost, ir::Dim(symbols_[i].least), symbol});
      if (symbols_[i].most != 0) result.conditions.push_back({Kind::kAtMost, symbol, ir::Dim(symbols_[i].most)});
    }
    if (has_only_operations(result)) return result;
  } catch (const std::exception&) {
    if (forget_python_error != nullptr) forget_python_error();
  }
  pin_most();
  return std::nullopt;
}

}  // namespace thunder::tracer
