#include "executors/cpu/wholes.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "bridge/convert.h"
#include "executors/api/lowering.h"
#include "executors/cpu/fusion.h"
#include "executors/cpu/operations.h"
#include "ir/symbol_values.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

bool is_cat(const BoundSymbol& symbol) { return symbol.op->name == "aten::cat" && symbol.op->overload.empty(); }

/// Whether a result of the fusion is known element by element, not when all is done.
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

/// Whether nothing reads these values twice. Only a few fusions come this far: the trace is gone through for each.
bool are_read_once(const std::vector<ir::ValueId>& values, const Trace& trace) {
  const std::vector<std::uint32_t> uses = passes::use_counts(trace);
  return std::ranges::all_of(values, [&](ir::ValueId id) { return uses[index_of(id)] == 1; });
}

std::optional<Whole> whole_of(const BoundSymbol& cat, const BoundSymbol& fused, const Trace& trace) {
  const auto* tensors = cat.arguments[0].get<ir::ArgumentList>();
  const auto* dim = cat.arguments.size() > 1 ? cat.arguments[1].get<std::int64_t>() : nullptr;
  const ir::TensorType* type = result_type(cat, trace);
  if (tensors == nullptr || tensors->size() < 2 || dim == nullptr || type == nullptr || !is_contiguous(*type)) {
    return std::nullopt;
  }
  const std::vector<ir::ValueId> results = ir::flat_results(fused);
  Whole whole{{}, {}, bridge::hints(type->sizes), bridge::hints(type->strides)};
  const std::size_t along = wrap_dim(*dim, whole.sizes.size());
  std::vector<ir::ValueId> values;
  std::int64_t offset = 0;
  for (const ir::Argument& argument : *tensors) {
    const auto* id = argument.get<ir::ValueId>();
    const auto place = id == nullptr ? results.end() : std::ranges::find(results, *id);
    if (place == results.end() || !is_of_elements(fused, *id, trace)) return std::nullopt;
    const ir::TensorType& part = *trace.tensor_type(*id);
    const bool fits = part.dtype == type->dtype && part.sizes.size() == whole.sizes.size() && is_contiguous(part);
    if (!fits) return std::nullopt;
    values.push_back(*id);
    whole.parts.push_back(static_cast<std::uint32_t>(place - results.begin()));
    whole.offsets.push_back(offset);
    offset += part.sizes[along].hint * whole.strides[along];
  }
  return are_read_once(values, trace) ? std::make_optional(std::move(whole)) : std::nullopt;
}

std::optional<Whole> find_whole(const BoundSymbol& cat, const Trace& trace) {
  for (const BoundSymbol& fused : trace.symbols) {
    if (fused.op != fusion_operator() || fused.nested.size() < 2) continue;
    if (auto whole = whole_of(cat, fused, trace)) return whole;
  }
  return std::nullopt;
}

/// The `cat`, as it runs.
struct Cat {
  c10::OperatorHandle op;
  Whole whole;
};
constexpr std::size_t kArguments = 2;

/// Whether a fusion computed the parts side by side: it did not where it ran operation by operation.
bool are_parts(const std::vector<at::Tensor>& parts, const Whole& whole) {
  const at::Storage& storage = parts[0].storage();
  const std::size_t bytes =
      std::accumulate(whole.sizes.begin(), whole.sizes.end(), parts[0].element_size(), std::multiplies<>());
  bool stand = storage.nbytes() >= bytes;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    stand = stand && parts[i].storage().is_alias_of(storage) && parts[i].storage_offset() == whole.offsets[i] &&
            parts[i].strides().equals(whole.strides);
  }
  return stand;
}

void run_cat(const void* state, std::vector<c10::IValue>& stack) {
  const auto& cat = *static_cast<const Cat*>(state);
  const std::vector<at::Tensor> parts = stack[stack.size() - kArguments].toTensorVector();
  if (!are_parts(parts, cat.whole)) return cat.op.callBoxed(stack);
  stack.resize(stack.size() - kArguments);
  stack.emplace_back(parts[0].as_strided(cat.whole.sizes, cat.whole.strides, 0));
}

}  // namespace

std::vector<Whole> wholes_of(const BoundSymbol& fused, const Trace& trace) {
  std::vector<Whole> wholes;
  for (const BoundSymbol* symbol = &fused + 1; symbol != trace.symbols.data() + trace.symbols.size(); ++symbol) {
    if (symbol->op != fusion_operator() || symbol->nested.size() != 1 || !is_cat(symbol->nested[0])) continue;
    if (auto whole = whole_of(symbol->nested[0], fused, trace)) wholes.push_back(*std::move(whole));
  }
  return wholes;
}

bool takes_cat(const BoundSymbol& symbol, const Trace& trace) { return is_cat(symbol) && find_whole(symbol, trace); }

void lower_cat(const BoundSymbol& symbol, const Trace& trace, runtime::ProgramBuilder& builder) {
  const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
  builder.call(op, &run_cat, std::make_shared<const Cat>(Cat{op, find_whole(symbol, trace).value()}),
               operands_of(symbol, trace), result_slots(symbol), location_of(symbol));
}

}  // namespace thunder::executors::cpu
