#include "executors/cpu/destinations.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "bridge/convert.h"
#include "executors/api/lowering.h"
#include "executors/cpu/fusion.h"
#include "executors/cpu/operations.h"
#include "ir/symbol_values.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

bool is_copy(const BoundSymbol& symbol) { return symbol.op->name == "aten::copy_"; }

/// The symbol that copies the value to a tensor just like it; null: there is none.
const BoundSymbol* copy_of(ir::ValueId value, std::span<const BoundSymbol> after, const Trace& trace) {
  const auto copies_it = [&](const BoundSymbol& symbol) {
    return is_copy(symbol) && passes::value_argument(symbol, 1) == value;
  };
  const auto copy = std::ranges::find_if(after, copies_it);
  const ir::ValueId target = copy == after.end() ? ir::kNoValue : passes::value_argument(*copy, 0);
  const bool fits =
      target != ir::kNoValue && passes::same_layout(*trace.tensor_type(target), *trace.tensor_type(value));
  return fits ? &*copy : nullptr;
}

std::vector<std::int32_t> overwritten_inputs(const BoundSymbol& fused, std::span<const BoundSymbol> after,
                                             const Trace& trace, const std::vector<std::uint32_t>& uses) {
  const std::vector<ir::ValueId> inputs = ir::distinct_values(fused.arguments);
  const std::vector<ir::ValueId> results = ir::flat_results(fused);
  std::vector<std::int32_t> places(results.size(), -1);
  if (std::ranges::none_of(after, is_copy)) return places;
  const passes::AliasAnalysis aliases(trace);
  for (std::size_t k = 0; k < results.size(); ++k) {
    const BoundSymbol* copy = uses[index_of(results[k])] == 1 ? copy_of(results[k], after, trace) : nullptr;
    if (copy == nullptr) continue;
    const ir::ValueId target = passes::value_argument(*copy, 0);
    const auto input = std::ranges::find(inputs, target);
    bool is_free = input != inputs.end();
    const auto others = std::span(after).first(static_cast<std::size_t>(copy - after.data()));
    for (const BoundSymbol& symbol : others) {
      // A number that is not as it was has the program run again, from its start.
      is_free = is_free && symbol.op->style != ir::CallStyle::kPrimitive;
      passes::for_each_argument(symbol, [&](ir::ValueId id) { is_free = is_free && !aliases.may_alias(id, target); });
    }
    for (const ir::ValueId id : inputs) is_free = is_free && (id == target || !aliases.may_alias(id, target));
    if (is_free) places[k] = static_cast<std::int32_t>(input - inputs.begin());
  }
  return places;
}

/// Whether a value is known element by element, not when all is done.
bool is_of_elements(const BoundSymbol& fused, ir::ValueId value, const Trace& trace) {
  for (const BoundSymbol& symbol : fused.nested) {
    std::size_t k = 0;
    bool found = false;
    passes::for_each_result(symbol, [&](ir::ValueId id) {
      if (id == value) found = role_of(symbol, trace).results.at(k) == FusionRole::Result::kElements;
      ++k;
    });
    if (found) return true;
  }
  return false;
}

/// What a symbol puts together of results of the fusion that nobody else reads; nullopt: something else.
std::optional<Whole> whole_of(const BoundSymbol& symbol, const BoundSymbol& fused, const Trace& trace,
                              const std::vector<std::uint32_t>& uses) {
  if (symbol.op->name != "aten::cat" || !symbol.op->overload.empty()) return std::nullopt;
  const auto* tensors = symbol.arguments[0].get<ir::ArgumentList>();
  const auto* dim = symbol.arguments.size() > 1 ? symbol.arguments[1].get<std::int64_t>() : nullptr;
  const ir::TensorType* type = result_type(symbol, trace);
  if (tensors == nullptr || tensors->size() < 2 || dim == nullptr || type == nullptr || !is_contiguous(*type)) {
    return std::nullopt;
  }
  const std::vector<ir::ValueId> results = ir::flat_results(fused);
  Whole whole{{}, {}, bridge::hints(type->sizes), bridge::hints(type->strides)};
  const std::size_t along = wrap_dim(*dim, whole.sizes.size());
  std::int64_t offset = 0;
  for (const ir::Argument& argument : *tensors) {
    const auto* id = argument.get<ir::ValueId>();
    const auto place = id == nullptr ? results.end() : std::ranges::find(results, *id);
    if (place == results.end() || uses[index_of(*id)] != 1 || !is_of_elements(fused, *id, trace)) return std::nullopt;
    const ir::TensorType& part = *trace.tensor_type(*id);
    if (part.dtype != type->dtype || part.sizes.size() != whole.sizes.size() || !is_contiguous(part)) {
      return std::nullopt;
    }
    whole.parts.push_back(static_cast<std::uint32_t>(place - results.begin()));
    whole.offsets.push_back(offset);
    offset += part.sizes[along].hint * whole.strides[along];
  }
  return whole;
}

/// A symbol, or the only one of a block.
const BoundSymbol& inner(const BoundSymbol& symbol) {
  return symbol.op == fusion_operator() && symbol.nested.size() == 1 ? symbol.nested[0] : symbol;
}

/// Of a symbol that puts parts together, as it runs.
struct Cat {
  c10::OperatorHandle op;
  Whole whole;
};

void run_cat(const void* state, std::vector<c10::IValue>& stack) {
  const auto& cat = *static_cast<const Cat*>(state);
  const auto parts = stack[stack.size() - 2].toTensorVector();
  const auto bytes = static_cast<std::size_t>(
      std::accumulate(cat.whole.sizes.begin(), cat.whole.sizes.end(), parts[0].element_size(), std::multiplies<>()));
  bool is_whole = parts[0].storage().nbytes() >= bytes;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    is_whole = is_whole && parts[i].storage().is_alias_of(parts[0].storage()) &&
               parts[i].storage_offset() == cat.whole.offsets[i] && parts[i].strides().equals(cat.whole.strides);
  }
  if (!is_whole) return cat.op.callBoxed(stack);
  at::Tensor whole = parts[0].as_strided(cat.whole.sizes, cat.whole.strides, 0);
  stack.resize(stack.size() - 2);
  stack.emplace_back(std::move(whole));
}

/// The fusion that makes the first of the parts, and the whole; nullopt: there is none.
std::optional<Whole> find_whole(const BoundSymbol& cat, const Trace& trace) {
  if (cat.op->name != "aten::cat") return std::nullopt;
  const std::vector<std::uint32_t> uses = passes::use_counts(trace);
  for (const BoundSymbol& fused : trace.symbols) {
    if (fused.op != fusion_operator() || fused.nested.size() < 2) continue;
    if (auto whole = whole_of(cat, fused, trace, uses)) return whole;
  }
  return std::nullopt;
}

}  // namespace

Destinations destinations_of(const BoundSymbol& fused, const Trace& trace) {
  const auto place = &fused - trace.symbols.data();
  const auto after = std::span(trace.symbols).subspan(static_cast<std::size_t>(place) + 1);
  const std::vector<std::uint32_t> uses = passes::use_counts(trace);
  Destinations destinations{overwritten_inputs(fused, after, trace, uses), {}};
  for (const BoundSymbol& symbol : after) {
    if (auto whole = whole_of(inner(symbol), fused, trace, uses)) destinations.wholes.push_back(*std::move(whole));
  }
  return destinations;
}

bool takes_cat(const BoundSymbol& symbol, const Trace& trace) { return find_whole(symbol, trace).has_value(); }

void lower_cat(const BoundSymbol& symbol, const Trace& trace, runtime::ProgramBuilder& builder) {
  const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
  builder.call(op, &run_cat, std::make_shared<const Cat>(Cat{op, find_whole(symbol, trace).value()}),
               operands_of(symbol, trace), result_slots(symbol), location_of(symbol));
}

}  // namespace thunder::executors::cpu
