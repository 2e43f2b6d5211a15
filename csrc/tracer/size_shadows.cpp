#include "tracer/size_shadows.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <array>
#include <exception>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"
#include "bridge/constant.h"
#include "bridge/convert.h"
#include "ir/trace_sizes.h"
#include "tracer/evaluate.h"
#include "tracer/kept_errors.h"
#include "tracer/map_tensors.h"
#include "tracer/operators.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_session.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

/// A symbol with fewer values is a number: few of them would tell little of the others.
constexpr std::int64_t kLeastRange = 32;
constexpr std::size_t kJointSamples = 5;

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

/// The type that `tensor` has with these sizes, in the same order in memory.
ir::TypePtr with_sizes(const at::Tensor& tensor, const ir::Dims& sizes) {
  ir::TensorType type = bridge::type_of(tensor);
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
    stride *= sizes[*dim];
  }
  return ir::make_type(std::move(type));
}

bool is_laid_out_alike(const at::Tensor& left, const at::Tensor& right) {
  return left.sizes() == right.sizes() && left.strides() == right.strides() &&
         left.storage_offset() == right.storage_offset();
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

SizeShadows::SizeShadows(Recorder& program, std::vector<SizeSymbol> symbols)
    : program_(program), symbols_(std::move(symbols)), host_(std::make_unique<Host>(program.host)) {
  std::vector<std::int64_t> traced;
  for (const SizeSymbol& symbol : symbols_) traced.push_back(symbol.traced);
  const auto add = [&](std::vector<std::int64_t> values, std::optional<std::uint32_t> only) {
    if (values == traced) return;
    Shadow& shadow = shadows_.emplace_back();
    shadow.symbols = std::move(values);
    shadow.only = only;
    shadow.recorder = std::make_unique<Recorder>(program.trace().blank(), *host_);
  };
  for (std::size_t sample = 0; sample < kJointSamples; ++sample) {
    std::vector<std::int64_t> values;
    for (std::size_t i = 0; i < symbols_.size(); ++i) values.push_back(sample_of(symbols_[i], sample, i));
    add(std::move(values), std::nullopt);
  }
  for (std::uint32_t i = 0; i < symbols_.size(); ++i) {
    std::vector<std::int64_t> values = traced;
    values[i] = sample_of(symbols_[i], kJointSamples, i);
    if (values == traced) ++values[i];
    add(std::move(values), i);
    const SizeSymbol& symbol = symbols_[i];
    if (symbol.most != 0 && symbol.most - symbol.least < kLeastRange) pin(i);
  }
}

SizeShadows::~SizeShadows() = default;

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
    shadow.tensors.emplace(impl, shadow.recorder->add_input(with_sizes(traced, sizes), name));
  }
  const auto is_symbol = [](const std::optional<std::uint32_t>& symbol) { return symbol.has_value(); };
  if (std::ranges::any_of(symbols, is_symbol)) trace_impl(traced)->watch_sizes();
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
  if (!is_known()) note_read(tensor);
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
    stack.push_back(map_tensors(argument, [&](const at::Tensor& tensor) { return tensor_in(shadow, tensor); }));
  }
  const RecordTop recording(*shadow.recorder);
  op.callBoxed(stack);
  THUNDER_CHECK(stack.size() == results.size(), "tracer", "there are other results at other sizes");
  for (std::size_t i = 0; i < stack.size(); ++i) pair(shadow, results[i], stack[i]);
}

void SizeShadows::follow(const c10::OperatorHandle& op, std::span<const IValue> arguments,
                         std::span<const IValue> results) {
  const Inside inside(*this);
  for (Shadow& shadow : shadows_) {
    if (shadow.is_lost) continue;
    std::string refusal = take_refusal();
    try {
      repeat(shadow, op, arguments, results);
    } catch (const std::exception&) {
      if (forget_python_error != nullptr) forget_python_error();
      lose(shadow);
    }
    static_cast<void>(take_refusal());
    if (!refusal.empty()) note_refusal(std::move(refusal));
  }
}

bool SizeShadows::has_only_operations(const ir::Trace& trace) const {
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    const bool is_operation =
        symbol.op->style == ir::CallStyle::kTorchOperator || symbol.op == tensor_constant_operator();
    if (!is_operation || symbol.op->effect) return false;
    // A write to an input of another size would be laid out otherwise.
    if (!symbol.op->mutates) continue;
    bool writes_symbols = false;
    for (const ir::Argument& argument : symbol.arguments) {
      ir::for_each_value(argument, [&](ir::ValueId id) {
        const ir::TensorType* type = trace.tensor_type(id);
        writes_symbols = writes_symbols || (type != nullptr && ir::has_symbols(*type));
      });
    }
    if (writes_symbols) return false;
  }
  return true;
}

std::optional<ir::Trace> SizeShadows::generalize(const ir::Trace& trace) {
  const Inside inside(*this);
  const auto is_lost = [](const Shadow& shadow) { return shadow.is_lost; };
  if (!pinned_.empty() || std::ranges::any_of(shadows_, is_lost)) {
    if (pinned_.empty()) pin_all();
    return std::nullopt;
  }
  const ir::TraceContext& context = *trace.context();
  const auto are_alike = [&context](ir::ObjectConstant left, ir::ObjectConstant right) {
    if (context.objects[left.index].kind != ir::ObjectKind::kTensor) return false;
    if (context.objects[right.index].kind != ir::ObjectKind::kTensor) return false;
    const at::Tensor& one = bridge::tensor_of(context, ir::Argument(left));
    const at::Tensor& other = bridge::tensor_of(context, ir::Argument(right));
    return one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type() && one.device() == other.device() &&
           (one.is_alias_of(other) || (one.is_cpu() && at::equal(one, other)));
  };
  try {
    ir::SizeSamples samples(1);
    for (const SizeSymbol& symbol : symbols_) samples[0].push_back(symbol.traced);
    std::vector<ir::Trace> traces{trace};
    for (Shadow& shadow : shadows_) {
      samples.push_back(shadow.symbols);
      ir::Trace other = shadow.recorder->finish(trace.outputs);
      keep_errors(other);
      traces.push_back(std::move(other));
    }
    ir::SizeFit fit(std::move(samples));
    for (std::uint32_t i = 0; i < symbols_.size(); ++i) fit.add(ir::Dim::symbol(i, symbols_[i].traced));
    ir::Trace result = ir::generalize(traces, fit, are_alike);
    ir::require_sizes_of_two(result, ir::Trace(result));
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
