#include "tracer/size_shadows.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "bridge/constant.h"
#include "bridge/convert.h"
#include "ir/trace_sizes.h"
#include "tracer/custom_gradient.h"
#include "tracer/data_dependence.h"
#include "tracer/evaluate.h"
#include "tracer/gradients_at_sizes.h"
#include "tracer/kept_errors.h"
#include "tracer/map_tensors.h"
#include "tracer/numbers.h"
#include "tracer/operators.h"
#include "tracer/recording_scopes.h"
#include "tracer/size_notes.h"
#include "tracer/trace_session.h"
#include "tracer/window_sizes.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

/// A symbol with fewer values is a number: few of them would tell little of the others.
constexpr std::int64_t kLeastRange = 32;
constexpr std::size_t kJointSamples = 5;
/// With fewer, the expression of a number is a guess.
constexpr std::size_t kLeastSamples = 5;

/// The value of symbol `i` in a sample.
std::int64_t sample_of(const SizeSymbol& symbol, std::size_t sample, std::size_t i) {
  constexpr std::array<std::array<std::int64_t, 8>, kJointSamples + 1> kValues{{
      {5, 11, 7, 17, 13, 23, 19, 29},                    // small
      {129, 113, 137, 107, 131, 103, 127, 101},          // in another order
      {4099, 1031, 2053, 1549, 3079, 1297, 2309, 1801},  // large
      {37, 37, 37, 37, 37, 37, 37, 37},                  // equal
      {6, 4, 10, 8, 14, 12, 18, 16},                     // even
      {43, 47, 53, 59, 61, 67, 71, 73},                  // where one symbol changes by itself
  }};
  const std::int64_t value = kValues[sample][i % kValues[sample].size()];
  if (symbol.most == 0) return std::max(value, symbol.least + value % 97);
  return symbol.least + value % (symbol.most - symbol.least + 1);
}

/// Numbers without a pattern, of many magnitudes, for where the usual samples do not meet the conditions.
std::int64_t other_sample_of(const SizeSymbol& symbol, std::size_t attempt, std::size_t i) {
  std::uint64_t state = (attempt * 64 + i + 1) * 0x9e3779b97f4a7c15U;
  state = (state ^ (state >> 29U)) * 0xbf58476d1ce4e5b9U;
  const std::uint64_t drawn = state >> 33U;
  // A third lies around the size that was traced, since conditions hold there.
  const std::uint64_t range =
      attempt % 3 == 0 ? 2 * static_cast<std::uint64_t>(symbol.traced) : std::uint64_t{8} << (attempt % 11);
  const std::int64_t value = 2 + static_cast<std::int64_t>(drawn % range);
  if (symbol.most == 0) return std::max(value, symbol.least);
  return symbol.least + value % (symbol.most - symbol.least + 1);
}

/// Changes a symbol that a condition names by itself so that it holds.
void meet(const ir::Condition& condition, std::vector<std::int64_t>& values) {
  const auto left = ir::symbol_of(condition.left);
  const auto right = ir::symbol_of(condition.right);
  if (condition.kind == ir::Condition::Kind::kEqual) {
    if (left) values[*left] = std::max<std::int64_t>(ir::evaluate(condition.right, values), 2);
    if (!left && right) values[*right] = std::max<std::int64_t>(ir::evaluate(condition.left, values), 2);
  } else if (condition.kind == ir::Condition::Kind::kDivisible && left && condition.right.is_concrete()) {
    values[*left] = condition.right.hint * std::max<std::int64_t>(values[*left] / condition.right.hint, 1);
  }
}

/// The type with these sizes, in the same order in memory.
ir::TypePtr with_sizes(ir::TensorType type, const ir::Dims& sizes) {
  if (type.sizes == sizes) return ir::make_type(std::move(type));
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto place = [&](std::size_t i) { return std::pair(type.strides[i].hint, type.sizes[i].hint); };
  std::ranges::stable_sort(order, std::less(), place);
  std::ranges::reverse(order);
  type.sizes = sizes;
  ir::Dim stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    type.strides[*dim] = stride;
    if (sizes[*dim].hint != 0) stride *= sizes[*dim];
  }
  return ir::make_type(std::move(type));
}

bool is_laid_out_alike(const at::Tensor& left, const at::Tensor& right) {
  return left.sizes() == right.sizes() && left.strides() == right.strides() &&
         left.storage_offset() == right.storage_offset();
}

/// Constants that operations make anew at each size.
ir::AreAlike constants_alike(const ir::TraceContext& context) {
  return [&context](ir::ObjectConstant left, ir::ObjectConstant right) {
    if (context.objects[left.index].kind != ir::ObjectKind::kTensor) return false;
    if (context.objects[right.index].kind != ir::ObjectKind::kTensor) return false;
    const at::Tensor& one = bridge::tensor_of(context, ir::Argument(left));
    const at::Tensor& other = bridge::tensor_of(context, ir::Argument(right));
    return one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type() && one.device() == other.device() &&
           (one.is_alias_of(other) || (one.is_cpu() && at::equal(one, other)));
  };
}

bool is_equal_value(const IValue& left, const IValue& right) {
  if (left.isInt() && right.isInt()) return left.toInt() == right.toInt();
  if (left.isBool() && right.isBool()) return left.toBool() == right.toBool();
  if (left.isDouble() && right.isDouble()) return left.toDouble() == right.toDouble();
  return left.isNone() && right.isNone();
}

}  // namespace

/// Where the program is, its shadows are.
class SizeShadows::Host final : public RecordingHost {
 public:
  explicit Host(RecordingHost& program) : RecordingHost(Recorded::kProgram), program_(program) {}
  ir::SourceLocation locate() override { return program_.locate(); }
  std::shared_ptr<void> leave_program() override { return program_.leave_program(); }

 private:
  RecordingHost& program_;
};

SizeShadows::SizeShadows(Recorder& program, std::vector<SizeSymbol> symbols, std::vector<ir::Condition> conditions)
    : program_(program),
      symbols_(std::move(symbols)),
      host_(std::make_unique<Host>(program.host)),
      probes_(program.trace().blank(), *host_) {
  scope_->shadows = this;
  add_shadows(conditions);
  make_fit();
}

SizeShadows::~SizeShadows() { scope_->shadows = nullptr; }

void SizeShadows::add_shadow(std::vector<std::int64_t> values, std::optional<std::uint32_t> only) {
  Shadow& shadow = shadows_.emplace_back();
  shadow.symbols = std::move(values);
  shadow.only = only;
  shadow.recorder = std::make_unique<Recorder>(program_.trace().blank(), *host_);
  shadow.recorder->data.infer_elsewhere = [this, sample = shadow.symbols, place = std::size_t{0}](
                                              const c10::OperatorHandle& op,
                                              std::span<const IValue> arguments) mutable {
    return data_types_at(sample, place++, op, arguments);
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
      each.type = with_sizes(std::get<ir::TensorType>(*each.type), sizes);
    }
  }
  return types;
}

void SizeShadows::add_shadows(const std::vector<ir::Condition>& conditions) {
  constexpr std::size_t kAttempts = 400;
  std::vector<std::int64_t> traced;
  for (const SizeSymbol& symbol : symbols_) traced.push_back(symbol.traced);
  const auto is_sample = [&](const std::vector<std::int64_t>& values) {
    const auto is_there = [&](const Shadow& shadow) { return shadow.symbols == values; };
    const auto is_met = [&](const ir::Condition& condition) { return ir::holds(condition, values); };
    return values != traced && std::ranges::none_of(shadows_, is_there) && std::ranges::all_of(conditions, is_met);
  };
  const auto draw = [&](std::size_t attempt, std::size_t usual, std::uint32_t i) {
    return attempt == 0 ? sample_of(symbols_[i], usual, i) : other_sample_of(symbols_[i], attempt + 31 * usual, i);
  };
  for (std::size_t sample = 0; sample < kJointSamples; ++sample) {
    for (std::size_t attempt = 0; attempt < kAttempts; ++attempt) {
      std::vector<std::int64_t> values;
      for (std::uint32_t i = 0; i < symbols_.size(); ++i) values.push_back(draw(attempt, sample, i));
      for (const ir::Condition& condition : conditions) meet(condition, values);
      if (!is_sample(values)) continue;
      add_shadow(std::move(values), std::nullopt);
      break;
    }
  }
  for (std::uint32_t i = 0; i < symbols_.size(); ++i) {
    for (std::size_t attempt = 0; attempt < kAttempts; ++attempt) {
      std::vector<std::int64_t> values = traced;
      values[i] = draw(attempt, kJointSamples, i);
      if (!is_sample(values)) continue;
      add_shadow(std::move(values), i);
      break;
    }
    const SizeSymbol& symbol = symbols_[i];
    if (symbol.most != 0 && symbol.most - symbol.least < kLeastRange) pin(i);
  }
  if (shadows_.size() + 1 < kLeastSamples && !symbols_.empty()) pin_all();
}

void SizeShadows::make_fit() {
  ir::SizeSamples samples(1);
  for (const SizeSymbol& symbol : symbols_) samples[0].push_back(symbol.traced);
  for (const Shadow& shadow : shadows_) samples.push_back(shadow.symbols);
  fit_ = std::make_unique<ir::SizeFit>(std::move(samples));
  for (std::uint32_t i = 0; i < symbols_.size(); ++i) fit_->add(ir::Dim::symbol(i, symbols_[i].traced));
  for (const ir::Dim& dim : expressions_) fit_->add(dim);
}

void SizeShadows::add_input(const at::Tensor& traced, std::span<const std::optional<std::uint32_t>> symbols) {
  const Inside inside(*this);
  const TraceTensorImpl* impl = trace_impl(traced);
  kept_.push_back(traced);
  for (Shadow& shadow : shadows_) {
    if (shadow.tensors.contains(impl)) continue;
    ir::Dims sizes;
    for (std::int64_t i = 0; i < traced.dim(); ++i) {
      const auto symbol = symbols.empty() ? std::nullopt : symbols[static_cast<std::size_t>(i)];
      sizes.emplace_back(symbol ? shadow.symbols[*symbol] : traced.size(i));
    }
    const std::string& name = program_.trace().value(impl->state()->value).name;
    shadow.tensors.emplace(impl, shadow.recorder->add_input(with_sizes(bridge::type_of(traced), sizes), name));
  }
  const auto is_symbol = [](const std::optional<std::uint32_t>& symbol) { return symbol.has_value(); };
  if (std::ranges::none_of(symbols, is_symbol)) return;
  trace_impl(traced)->watch_sizes();
  // Sizes of views, and of what is flattened, are made of these.
  ir::Dims dims;
  for (std::int64_t i = 0; i < traced.dim(); ++i) {
    const auto symbol = symbols[static_cast<std::size_t>(i)];
    dims.push_back(symbol ? ir::Dim::symbol(*symbol, traced.size(i)) : ir::Dim(traced.size(i)));
  }
  const ir::TypePtr type = with_sizes(bridge::type_of(traced), dims);
  for (const ir::Dim& stride : std::get<ir::TensorType>(*type).strides) fit_->add(stride);
  fit_->add(ir::product_of(dims));
}

bool SizeShadows::is_outside() const { return depth_ == 0; }

void SizeShadows::pin(std::uint32_t symbol) {
  if (!pinned_.insert(symbol).second) return;
  const std::shared_ptr<void> outside = program_.host.leave_program();
  reasons_.emplace_back(symbol, program_.host.locate());
}

void SizeShadows::pin_all() {
  for (std::uint32_t i = 0; i < symbols_.size(); ++i) pin(i);
}

void SizeShadows::lose(Shadow& shadow) {
  shadow.is_lost = true;
  if (shadow.only) pin(*shadow.only);
}

std::vector<ir::Condition> SizeShadows::equalities_of(std::span<const IValue> arguments) {
  std::vector<ir::Condition> conditions;
  std::vector<ir::Dims> shapes;
  for (const at::Tensor& tensor : tensors_of(arguments)) {
    const TraceTensorImpl* impl = trace_impl(tensor);
    const bool is_watched = impl != nullptr && impl->is_watched();
    const auto dims = is_watched ? dims_of(*impl) : std::optional(bridge::to_dims(tensor.sizes()));
    if (!dims) return {};
    shapes.push_back(*dims);
  }
  for (std::size_t k = 1; k < shapes.size(); ++k) {
    for (std::size_t i = 0; i < std::min(shapes[0].size(), shapes[k].size()); ++i) {
      const ir::Dim& left = shapes[0][shapes[0].size() - 1 - i];
      const ir::Dim& right = shapes[k][shapes[k].size() - 1 - i];
      if (left.is_concrete() || right.is_concrete() || left == right) continue;
      ir::Answer answer = ir::SizeQuestions(fit_->samples()[0]).are_equal(left, right);
      if (answer.is_possible) std::ranges::move(answer.conditions, std::back_inserter(conditions));
    }
  }
  return conditions;
}

void SizeShadows::exclude(std::span<Shadow* const> failed, std::span<const IValue> arguments) {
  const std::vector<std::int64_t> traced = fit_->samples()[0];
  std::vector<ir::SymbolValues> fitting{traced}, failing;
  for (const Shadow& shadow : shadows_) {
    const bool has_failed = std::ranges::find(failed, &shadow) != failed.end();
    (has_failed ? failing : fitting).emplace_back(shadow.symbols);
  }
  const auto is_apart = [&](const std::vector<ir::Condition>& conditions) {
    return std::ranges::all_of(failing, [&](ir::SymbolValues values) {
      return !std::ranges::all_of(conditions, [&](const ir::Condition& each) { return ir::holds(each, values); });
    });
  };
  auto bounds = is_any_lost() ? std::nullopt : bounds_between(fitting, failing);
  if (!bounds && !is_any_lost()) {
    std::vector<ir::Condition> equal = equalities_of(arguments);
    if (!equal.empty() && is_apart(equal)) bounds = std::move(equal);
  }
  if (!bounds) {
    for (Shadow* shadow : failed) lose(*shadow);
    return;
  }
  for (const ir::Condition& bound : *bounds) assume(bound);
}

bool SizeShadows::is_any_lost() const {
  return std::ranges::any_of(shadows_, [](const Shadow& shadow) { return shadow.is_lost; });
}

bool SizeShadows::tells_sizes() const { return !is_any_lost() && shadows_.size() + 1 >= kLeastSamples; }

void SizeShadows::settle() {
  if (pinned_.empty() && !wants_samples_ && (is_any_lost() || shadows_.size() + 1 < kLeastSamples)) pin_all();
}

// --- sizes as the program gets them

void SizeShadows::note_expression(const ir::Dim& dim) {
  if (dim.is_concrete() || std::ranges::find(expressions_, dim) != expressions_.end()) return;
  expressions_.push_back(dim);
  fit_->add(dim);
}

void SizeShadows::pin_symbols_of(const ir::Dim& dim) {
  std::vector<std::uint32_t> symbols;
  ir::add_symbols(dim, symbols);
  for (const std::uint32_t symbol : symbols) pin(symbol);
}

void SizeShadows::assume(const ir::Condition& condition) {
  if (is_certain(condition)) return;
  using Kind = ir::Condition::Kind;
  if (condition.kind == Kind::kEqual && (condition.left.is_concrete() || condition.right.is_concrete())) {
    return pin_symbols_of(condition.left - condition.right);
  }
  if (std::ranges::find(assumed_, condition, &Assumed::condition) != assumed_.end()) return;
  {
    const std::shared_ptr<void> outside = program_.host.leave_program();
    assumed_.push_back({condition, program_.host.locate()});
  }
  const std::size_t dropped =
      std::erase_if(shadows_, [&](const Shadow& shadow) { return !ir::holds(condition, shadow.symbols); });
  if (dropped == 0) return;
  wants_samples_ = true;
  make_fit();
}

void SizeShadows::require_divisor(const ir::Dim& divisor) {
  const auto comparison = divisor.hint > 0 ? SizeComparison::kGreater : SizeComparison::kLess;
  for (const ir::Condition& condition : compare_sizes(divisor, comparison, 0).conditions) assume(condition);
}

std::optional<ir::Dims> SizeShadows::dims_of(const c10::TensorImpl& tensor) {
  if (!tells_sizes()) return std::nullopt;
  const Inside inside(*this);
  ir::Dims dims;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    std::vector<std::int64_t> numbers{tensor.size(i)};
    for (const Shadow& shadow : shadows_) {
      const auto found = shadow.tensors.find(&tensor);
      if (found == shadow.tensors.end()) return pin_all(), std::nullopt;
      numbers.push_back(found->second.size(i));
    }
    const std::optional<ir::Dim> dim = fit_->find(numbers);
    if (!dim) return note_read(tensor), std::nullopt;
    dims.push_back(*dim);
  }
  fit_->add(ir::product_of(dims));  // sizes of what is flattened
  return dims;
}

c10::SymInt SizeShadows::as_size(const ir::Dim& dim) const {
  if (dim.is_concrete()) return dim.hint;
  return c10::SymInt(c10::SymNode(c10::make_intrusive<SizeNode>(scope_, dim)));
}

c10::SymInt SizeShadows::symbol(std::uint32_t index) const {
  return as_size(ir::Dim::symbol(index, symbols_[index].traced));
}

c10::SymIntArrayRef SizeShadows::sym_sizes(const c10::TensorImpl& tensor) {
  const std::optional<ir::Dims> dims = dims_of(tensor);
  const Inside inside(*this);
  if (!dims) return tensor.sym_sizes();
  std::vector<c10::SymInt>& sizes = sizes_[&tensor];
  const auto is_given = [&](std::size_t i) {
    const SizeNode* node = size_node_of(sizes[i]);
    return node != nullptr ? node->dim() == (*dims)[i]
                           : !sizes[i].is_heap_allocated() && ir::Dim(sizes[i].as_int_unchecked()) == (*dims)[i];
  };
  bool is_same = sizes.size() == dims->size();
  for (std::size_t i = 0; is_same && i < dims->size(); ++i) is_same = is_given(i);
  if (is_same) return sizes;
  sizes.clear();
  for (const ir::Dim& dim : *dims) sizes.push_back(as_size(dim));
  return sizes;
}

c10::SymInt SizeShadows::sym_numel(const c10::TensorImpl& tensor) {
  const std::optional<ir::Dims> dims = dims_of(tensor);
  const Inside inside(*this);
  if (!dims) return tensor.numel();
  const ir::Dim count = ir::product_of(*dims);
  note_expression(count);
  return as_size(count);
}

void SizeShadows::note_copy(const c10::TensorImpl& tensor, const at::Tensor& copy) {
  bool is_known = false;
  for (Shadow& shadow : shadows_) {
    const auto found = shadow.tensors.find(&tensor);
    if (found == shadow.tensors.end()) continue;
    is_known = true;
    const at::Tensor other = found->second;
    shadow.tensors.insert_or_assign(copy.unsafeGetTensorImpl(), other);
  }
  if (is_known) kept_.push_back(copy);
}

// --- arguments of operations

std::optional<ir::Dim> SizeShadows::size_at(const IValue& value, std::int64_t dim) {
  const TraceTensorImpl* impl = trace_impl(value.toTensor());
  if (impl == nullptr || !impl->is_watched()) {
    const Inside inside(*this);
    const bool is_there = dim < value.toTensor().dim() && dim >= -value.toTensor().dim();
    return is_there ? std::optional<ir::Dim>(value.toTensor().size(dim)) : std::nullopt;
  }
  const std::optional<ir::Dims> dims = dims_of(*impl);
  const auto rank = static_cast<std::int64_t>(dims ? dims->size() : 0);
  if (dim >= rank || dim < -rank) return std::nullopt;
  return (*dims)[static_cast<std::size_t>(dim < 0 ? dim + rank : dim)];
}

namespace {

ir::Dim dim_of(const IValue& value) {
  if (value.isInt()) return value.toInt();
  const c10::SymInt size = value.toSymInt();
  const SizeNode* node = size_node_of(size);
  return node == nullptr ? ir::Dim(size.guard_int(__FILE__, __LINE__)) : node->dim();
}

bool has_parameters(const c10::OperatorHandle& op, std::initializer_list<std::string_view> names) {
  return std::ranges::equal(op.schema().arguments(), names, {}, &c10::Argument::name);
}

bool is_size(const IValue& value) { return value.isInt() || value.isSymInt(); }

}  // namespace

// A slice ends where the dimension does: its size is one of several expressions.
void SizeShadows::note_slice(std::span<const IValue> arguments) {
  if (!arguments[1].isInt() || !arguments[4].isInt() || arguments[4].toInt() < 1) return;
  const std::optional<ir::Dim> size = size_at(arguments[0], arguments[1].toInt());
  if (!size) return;
  const auto decide = [&](const ir::Dim& left, SizeComparison comparison, const ir::Dim& right) {
    const Compared compared = compare_sizes(left, comparison, right);
    for (const ir::Condition& condition : compared.conditions) assume(condition);
    return compared.outcome;
  };
  const auto place_of = [&](const IValue& value, const ir::Dim& missing) {
    if (!is_size(value)) return missing;
    ir::Dim place = dim_of(value);
    if (place.is_concrete() && place.hint == std::numeric_limits<std::int64_t>::max()) return *size;
    if (decide(place, SizeComparison::kLess, 0)) place = place + *size;
    if (decide(place, SizeComparison::kLess, 0)) return ir::Dim(0);
    return decide(place, SizeComparison::kLess, *size) ? place : *size;
  };
  const ir::Dim begin = place_of(arguments[2], 0);
  const ir::Dim end = place_of(arguments[3], *size);
  if (!decide(begin, SizeComparison::kLessOrEqual, end)) return;
  const std::int64_t step = arguments[4].toInt();
  note_expression(begin);
  note_expression(step == 1 ? end - begin : ir::floor_divide(end - begin + ir::Dim(step - 1), step));
}

void SizeShadows::note_select(std::span<const IValue> arguments) {
  if (!arguments[1].isInt() || !is_size(arguments[2])) return;
  const std::optional<ir::Dim> size = size_at(arguments[0], arguments[1].toInt());
  if (!size) return;
  const ir::Dim index = dim_of(arguments[2]);
  const bool is_from_end = index.hint < 0;
  const ir::Dim most = is_from_end ? ir::Dim(-1) * index : index + ir::Dim(1);
  for (const auto& [left, right] :
       {std::pair(most, *size), std::pair(ir::Dim(is_from_end ? 1 : 0), is_from_end ? most : index)}) {
    if (left.hint > right.hint) return;  // an error
    for (const ir::Condition& condition : compare_sizes(left, SizeComparison::kLessOrEqual, right).conditions) {
      assume(condition);
    }
  }
}

// With fewer than two windows the operation is another one, or an error.
void SizeShadows::note_windows(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  if (!arguments[0].isTensor()) return;
  ir::Dims sizes;
  for (std::int64_t i = 0; i < arguments[0].toTensor().dim(); ++i) {
    const std::optional<ir::Dim> size = size_at(arguments[0], i);
    if (!size) return;
    sizes.push_back(*size);
  }
  std::vector<ir::Condition> conditions;
  const std::vector<ir::Dim> counts = window_counts(op, arguments, sizes, conditions);
  for (const ir::Condition& condition : conditions) assume(condition);
  for (const ir::Dim& count : counts) {
    if (count.is_concrete() || count.hint < 2) continue;
    assume({ir::Condition::Kind::kAtMost, 2, count});
    note_expression(count);
  }
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
  if (has_parameters(op, {"self", "dim", "start", "end", "step"})) note_slice(arguments);
  if (has_parameters(op, {"self", "dim", "index"})) note_select(arguments);
  if (slides_windows(op)) note_windows(op, arguments);
  if (tells_sizes()) note_operation(op, arguments);
  std::vector<IValue> result;
  for (const IValue& argument : arguments) result.push_back(with_numbers(argument, std::nullopt));
  return result;
}

// --- other sizes

void SizeShadows::note_read(const c10::TensorImpl& tensor) {
  const Inside inside(*this);
  auto* const impl = const_cast<c10::TensorImpl*>(&tensor);
  const at::Tensor of_program(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(impl));
  bool follows_one = false;
  bool follows_several = false;
  for (const Shadow& shadow : shadows_) {
    const auto found = shadow.tensors.find(impl);
    if (found == shadow.tensors.end()) return pin_all();
    if (is_laid_out_alike(of_program, found->second)) continue;
    (shadow.only ? follows_one : follows_several) = true;
    if (shadow.only) pin(*shadow.only);
  }
  if (follows_several && !follows_one) pin_all();
}

namespace {

/// The dimensions of a tensor; the stride of one is then a product of two expressions that are known.
std::vector<std::int64_t> innermost_first(const c10::TensorImpl& tensor) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(tensor.dim()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, {}, [&](std::int64_t dim) { return tensor.stride(dim); });
  return order;
}

}  // namespace

std::optional<ir::Dims> SizeShadows::strides_of(const c10::TensorImpl& tensor) {
  const Inside inside(*this);
  ir::Dims strides(static_cast<std::size_t>(tensor.dim()));
  for (const std::int64_t i : innermost_first(tensor)) {
    std::vector<std::int64_t> numbers{tensor.stride(i)};
    for (const Shadow& shadow : shadows_) {
      const auto found = shadow.tensors.find(&tensor);
      if (found == shadow.tensors.end()) return std::nullopt;
      numbers.push_back(found->second.stride(i));
    }
    const std::optional<ir::Dim> stride = fit_->find(numbers);
    if (!stride) return std::nullopt;
    strides[static_cast<std::size_t>(i)] = *stride;
  }
  return strides;
}

// A stride that is not what it would be without gaps decides.
bool SizeShadows::decide_contiguity(const c10::TensorImpl& tensor) {
  if (!tells_sizes()) return false;
  const std::optional<ir::Dims> sizes = dims_of(tensor);
  const std::optional<ir::Dims> strides = sizes ? strides_of(tensor) : std::nullopt;
  if (!strides) return false;
  std::vector<ir::Condition> conditions;
  ir::Dim expected = 1;
  for (std::size_t i = sizes->size(); i-- > 0;) {
    const ir::Dim& size = (*sizes)[i];
    if (size.hint == 0) return false;
    if (size.hint == 1) continue;
    const bool is_equal = (*strides)[i].hint == expected.hint;
    const auto comparison = is_equal ? SizeComparison::kEqual : SizeComparison::kNotEqual;
    Compared compared = compare_sizes((*strides)[i], comparison, expected);
    if (!is_equal) conditions.clear();
    std::ranges::move(compared.conditions, std::back_inserter(conditions));
    if (!is_equal) break;
    expected *= size;
  }
  for (const ir::Condition& condition : conditions) assume(condition);
  return true;
}

void SizeShadows::note_contiguity(const c10::TensorImpl& tensor, at::MemoryFormat format) {
  const auto is_known = [&] {
    const Inside inside(*this);
    const bool answer = tensor.is_contiguous(format);
    return std::ranges::all_of(shadows_, [&](const Shadow& shadow) {
      const auto found = shadow.tensors.find(&tensor);
      return !shadow.is_lost && found != shadow.tensors.end() && found->second.is_contiguous(format) == answer &&
             found->second.is_non_overlapping_and_dense();
    });
  };
  if (is_known() || (format == at::MemoryFormat::Contiguous && decide_contiguity(tensor))) return;
  note_read(tensor);
}

void SizeShadows::note_failure(std::span<const IValue> arguments) {
  for (const at::Tensor& tensor : tensors_of(arguments)) {
    const TraceTensorImpl* impl = trace_impl(tensor);
    if (impl != nullptr && impl->is_watched()) note_read(*impl);
  }
}

at::Tensor SizeShadows::tensor_in(const Shadow& shadow, const at::Tensor& tensor) const {
  if (!tensor.defined()) return tensor;
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
  return found->second;
}

void SizeShadows::pair(Shadow& shadow, const IValue& result, const IValue& other) {
  if (result.isTensor() && other.isTensor()) {
    TraceTensorImpl* impl = trace_impl(result.toTensor());
    const bool is_traced = trace_impl(other.toTensor()) != nullptr;
    if (impl == nullptr && !is_traced) return;
    THUNDER_CHECK(impl != nullptr && is_traced, "tracer", "a result is of the trace at some sizes only");
    shadow.tensors.insert_or_assign(impl, other.toTensor());
    kept_.push_back(result.toTensor());
    if (!is_laid_out_alike(result.toTensor(), other.toTensor())) impl->watch_sizes();
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
  for (const at::Tensor& tensor : tensors_of(results)) require_sizes_of_two(tensor);
  probe(op, arguments, results);
}

// --- sizes that are next to others

std::optional<ir::TensorType> SizeShadows::general_type(const at::Tensor& tensor) {
  const TraceTensorImpl* impl = trace_impl(tensor);
  std::optional<at::Tensor> input;
  if (impl == nullptr) input = program_.tensors.find_input(tensor);
  if (input) impl = trace_impl(*input);
  if (impl == nullptr) return std::nullopt;
  ir::TensorType type = bridge::type_of(input ? *input : tensor);
  if (!impl->is_watched()) return type;
  std::optional<ir::Dims> sizes = dims_of(*impl);
  std::optional<ir::Dims> strides = sizes ? strides_of(*impl) : std::nullopt;
  if (!strides) return std::nullopt;
  type.sizes = *std::move(sizes);
  type.strides = *std::move(strides);
  return type;
}

void SizeShadows::probe(const c10::OperatorHandle& op, std::span<const IValue> arguments,
                        std::span<const IValue> results) {
  const auto can_probe = [&] { return pinned_.empty() && !wants_samples_ && tells_sizes(); };
  if (!can_probe()) return;
  SizedCall call{op, arguments, {}, {}};
  for (const at::Tensor& tensor : tensors_of(arguments)) call.types.push_back(general_type(tensor));
  for (const at::Tensor& tensor : tensors_of(results)) {
    const std::optional<ir::TensorType> type = general_type(tensor);
    if (type) std::ranges::copy(type->sizes, std::back_inserter(call.results));
  }
  if (!can_probe()) return;
  const auto admits = [&](ir::SymbolValues values) {
    for (std::size_t i = 0; i < symbols_.size(); ++i) {
      if (values[i] < symbols_[i].least || (symbols_[i].most != 0 && values[i] > symbols_[i].most)) return false;
    }
    return std::ranges::all_of(assumed_, [&](const Assumed& assumed) { return ir::holds(assumed.condition, values); });
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
      pin_symbols_of(dim);
    } else if (std::ranges::any_of(shadows_, is_small)) {
      assume({ir::Condition::Kind::kAtMost, 2, dim});
    }
  }
}

// --- views

bool SizeShadows::add_sizes(std::size_t argument, const IValue& value, std::span<const IValue> others,
                            std::vector<SizeInCall>& sizes) {
  const auto add = [&](std::optional<std::size_t> element, std::int64_t number, const auto& number_in) {
    std::vector<std::int64_t> numbers{number};
    for (const IValue& other : others) numbers.push_back(number_in(other));
    const std::optional<ir::Dim> dim = fit_->find(numbers);
    if (dim && !dim->is_concrete()) sizes.push_back({argument, element, *dim});
    return dim.has_value();
  };
  if (value.isInt()) {
    if (!std::ranges::all_of(others, &IValue::isInt)) return false;
    return add(std::nullopt, value.toInt(), [](const IValue& other) { return other.toInt(); });
  }
  if (!value.isIntList()) {
    return std::ranges::all_of(others, [&](const IValue& other) { return is_equal_value(value, other); });
  }
  const c10::List<std::int64_t> list = value.toIntList();
  const auto is_as_long = [&](const IValue& other) {
    return other.isIntList() && other.toIntList().size() == list.size();
  };
  if (!std::ranges::all_of(others, is_as_long)) return false;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!add(i, list[i], [i](const IValue& other) { return static_cast<std::int64_t>(other.toIntList()[i]); })) {
      return false;
    }
  }
  return true;
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
  std::vector<std::vector<SizeInCall>> result;
  for (const ViewOf* view : views) {
    std::vector<const ViewOf*> others;
    for (at::Tensor& each : shown) {
      const auto& other = trace_impl(each)->state()->view;
      const bool is_alike = other && other->is_data == view->is_data && other->op == view->op &&
                            other->result == view->result && other->arguments.size() == view->arguments.size();
      if (!is_alike) return std::nullopt;
      others.push_back(&*other);
    }
    std::vector<SizeInCall>& sizes = result.emplace_back();
    for (std::size_t i = 1; i < view->arguments.size(); ++i) {
      std::vector<IValue> values;
      for (const ViewOf* other : others) values.push_back(other->arguments[i]);
      if (!add_sizes(i, view->arguments[i], values, sizes)) return std::nullopt;
    }
    for (std::size_t i = 0; i < shown.size(); ++i) shown[i] = at::Tensor(others[i]->parent);
  }
  return result;
}

namespace {

bool is_statistic(const ir::BoundSymbol& symbol, std::size_t argument) {
  return symbol.op->parameters[argument].name.starts_with("running_");
}

/// Whether an operation may write to a tensor whose sizes depend on symbols: an input of another size would be laid out
/// otherwise.
bool writes_to_symbols(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  bool writes = false;
  for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
    if (!symbol.op->mutates && !is_statistic(symbol, i)) continue;
    ir::for_each_value(symbol.arguments[i], [&](ir::ValueId id) {
      const ir::TensorType* type = trace.tensor_type(id);
      writes = writes || (type != nullptr && ir::has_symbols(*type));
    });
  }
  return writes;
}

bool is_plain_operation(const ir::BoundSymbol& symbol) {
  if (symbol.op == tensor_constant_operator()) return true;
  if (symbol.op->style != ir::CallStyle::kTorchOperator) return false;
  if (!symbol.op->effect) return true;
  // An operation without results that does not communicate may only raise an error; others update running statistics.
  return !symbol.op->results.empty() || !operators::communicates(*symbol.op);
}

}  // namespace

bool SizeShadows::has_only_operations(const ir::Trace& trace) const {
  const auto is_plain = [&](const ir::BoundSymbol& symbol) {
    return is_plain_operation(symbol) && !writes_to_symbols(trace, symbol);
  };
  return std::ranges::all_of(trace.symbols, [&](const ir::BoundSymbol& symbol) {
    if (symbol.op == custom_gradient_operator()) {
      return std::ranges::all_of(custom_gradient_of(symbol, trace).symbols, is_plain);
    }
    const bool looks_at_data = is_check(*symbol.op) || symbol.op == item_operator() || symbol.op == number_operator();
    return looks_at_data || is_plain(symbol);
  });
}

std::optional<ir::Trace> SizeShadows::generalize(const ir::Trace& trace) {
  const Inside inside(*this);
  settle();
  if (!pinned_.empty() || wants_samples_) return std::nullopt;
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
    for (const Assumed& assumed : assumed_) result.conditions.push_back(assumed.condition);
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
  pin_all();
  return std::nullopt;
}

}  // namespace thunder::tracer
