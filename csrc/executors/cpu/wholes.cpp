#include "executors/cpu/wholes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "bridge/convert.h"
#include "executors/api/lowering.h"
#include "executors/cpu/fusion.h"
#include "executors/cpu/tile_emission.h"
#include "fusion/operations.h"
#include "fusion/placements.h"
#include "fusion/region.h"
#include "ir/symbol_values.h"
#include "ir/trace_sizes.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

using fusion::Placement;
using fusion::Placements;
using fusion::placements_of;
using ir::BoundSymbol;
using ir::Trace;
using passes::is_contiguous;
using passes::result_type;

/// Whether a result of the fusion is known element by element, not when all is done.
bool is_of_elements(const BoundSymbol& fused, ir::ValueId value, const Trace& trace) {
  for (const BoundSymbol& symbol : fused.nested) {
    std::size_t k = 0;
    bool found = false;
    passes::for_each_result(symbol, [&](ir::ValueId id) {
      if (id == value)
        found = fusion::role_of(symbol, trace, target()).results.at(k) == fusion::FusionRole::Result::kElements;
      ++k;
    });
    if (found) return true;
  }
  return false;
}

bool is_fusion(const BoundSymbol& symbol) { return symbol.op == fusion::fused_operator() && symbol.nested.size() > 1; }

/// Whether no size depends on symbols.
bool are_numbers(const Placements& placements, const ir::TensorType& whole) {
  const auto are_numbers = [](const ir::Dims& dims) { return std::ranges::all_of(dims, &ir::Dim::is_concrete); };
  const auto is_number = [&](const Placement& part) { return are_numbers(part.sizes) && are_numbers(part.start); };
  return !ir::has_symbols(whole) && std::ranges::all_of(placements.parts, is_number);
}

/// Where parts stand that hide no other, and do not reach out of the whole.
std::optional<Placements> side_by_side(const BoundSymbol& symbol, const Trace& trace) {
  auto placements = placements_of(symbol, trace);
  const ir::TensorType* whole = result_type(symbol, trace);
  if (!placements || !passes::is_dense(*whole) || !are_numbers(*placements, *whole)) return std::nullopt;
  std::int64_t count = 0;
  for (const Placement& part : placements->parts) {
    count += passes::element_count(*trace.tensor_type(part.value));
    for (std::size_t i = 0; i < part.sizes.size(); ++i) {
      const std::int64_t start = part.start[i].hint;
      if (start < 0 || start + part.sizes[i].hint > whole->sizes[i].hint) return std::nullopt;
    }
  }
  return count <= passes::element_count(*whole) ? placements : std::nullopt;
}

/// The place among the results of a fusion of a value that only one operation reads.
std::optional<std::uint32_t> place_of(ir::ValueId value, const BoundSymbol& fused, const Trace& trace) {
  const std::vector<ir::ValueId> results = ir::flat_results(fused);
  const auto place = std::ranges::find(results, value);
  if (place == results.end() || !is_of_elements(fused, value, trace)) return std::nullopt;
  if (passes::use_counts(trace)[index_of(value)] != 1) return std::nullopt;
  return static_cast<std::uint32_t>(place - results.begin());
}

std::optional<Whole::Part> part_of(const Placement& part, const Whole& whole, const BoundSymbol& fused,
                                   const Trace& trace) {
  const auto place = place_of(part.value, fused, trace);
  if (!place) return std::nullopt;
  Whole::Part made{*place, 0, whole.strides};
  for (std::size_t i = 0; i < part.start.size(); ++i) made.offset += part.start[i] * whole.strides[i];
  if (part.missing_dim) made.strides.erase(made.strides.begin() + static_cast<std::ptrdiff_t>(*part.missing_dim));
  // Elements follow one another there as they would in a tensor of their own.
  const ir::TensorType& type = *trace.tensor_type(part.value);
  ir::TensorType there = type;
  there.strides = made.strides;
  const std::vector<std::size_t> order = fusion::memory_order(type);
  const bool fits = passes::is_dense(type) && fusion::memory_order(there) == order && !order.empty() &&
                    made.strides[order.back()] == ir::Dim(1);
  return fits ? std::make_optional(std::move(made)) : std::nullopt;
}

/// What a fusion computes in place of an operation's whole.
struct Found {
  const BoundSymbol* fused;
  Whole whole;
};
/// Of the first fusion that gives parts.
std::optional<Found> find_whole(const BoundSymbol& symbol, const Trace& trace) {
  const auto placements = side_by_side(symbol, trace);
  if (!placements) return std::nullopt;
  const ir::TensorType& type = *result_type(symbol, trace);
  Whole whole{{}, type.sizes, type.strides};
  for (const BoundSymbol& fused : trace.symbols) {
    if (!is_fusion(fused)) continue;
    for (const Placement& placement : placements->parts) {
      if (auto part = part_of(placement, whole, fused, trace)) whole.parts.push_back(*std::move(part));
    }
    if (!whole.parts.empty()) return Found{&fused, std::move(whole)};
  }
  return std::nullopt;
}

std::optional<Cut> cut_of(const BoundSymbol& symbol, const BoundSymbol& fused, const Trace& trace) {
  const auto placements = placements_of(symbol, trace);
  const ir::TensorType* type = result_type(symbol, trace);
  if (!placements || placements->parts.size() != 1 || !is_contiguous(*type)) return std::nullopt;
  if (!are_numbers(*placements, *type)) return std::nullopt;
  const Placement& part = placements->parts[0];
  const auto place = place_of(part.value, fused, trace);
  if (!place || part.missing_dim || !is_contiguous(*trace.tensor_type(part.value))) return std::nullopt;
  Cut cut{*place, {}, type->sizes, type->strides};
  for (std::size_t i = 0; i < cut.sizes.size(); ++i) {
    const std::int64_t start = -part.start[i].hint;
    if (start < 0 || start + cut.sizes[i].hint > part.sizes[i].hint) return std::nullopt;
    cut.start.emplace_back(start);
  }
  std::int64_t stretch = 1;  // of elements that follow one another in the result, too
  for (std::size_t i = cut.sizes.size(); i-- > 0;) {
    stretch *= cut.sizes[i].hint;
    if (cut.sizes[i] != part.sizes[i]) break;
  }
  return stretch >= target().least_run ? std::make_optional(std::move(cut)) : std::nullopt;
}

/// The operation, as it runs.
struct Join {
  c10::OperatorHandle op;
  struct Part {
    std::vector<std::int64_t> start;
    std::vector<std::int64_t> sizes;
    std::optional<std::size_t> missing_dim;
    std::int64_t offset = -1;  ///< where a fusion computed it; -1: none did
    std::vector<std::int64_t> strides;
  };
  std::vector<Part> parts;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::optional<double> fill;  ///< elsewhere, if there is an elsewhere
};

std::vector<at::Tensor> tensors_of(std::span<const c10::IValue> arguments) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) tensors.push_back(argument.toTensor());
    if (argument.isTensorList()) std::ranges::copy(argument.toTensorVector(), std::back_inserter(tensors));
  }
  return tensors;
}

/// The memory of the whole, if a fusion computed its parts there: it did not where it ran operation by operation.
at::Tensor whole_around(const std::vector<at::Tensor>& tensors, const Join& join) {
  const at::Tensor* first = nullptr;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Join::Part& part = join.parts[i];
    if (part.offset < 0) continue;
    if (first == nullptr) first = &tensors[i];
    const bool stands = tensors[i].storage().is_alias_of(first->storage()) &&
                        tensors[i].storage_offset() == part.offset && tensors[i].strides().equals(part.strides);
    if (!stands) return {};
  }
  const auto count = std::accumulate(join.sizes.begin(), join.sizes.end(), std::int64_t{1}, std::multiplies<>());
  const bool is_whole = first->storage().nbytes() >= static_cast<std::size_t>(count) * first->element_size();
  return is_whole ? first->as_strided(join.sizes, join.strides, 0) : at::Tensor();
}

at::Tensor box(at::Tensor whole, const Join::Part& part) {
  for (std::size_t i = 0; i < part.start.size(); ++i) {
    whole = whole.narrow(static_cast<std::int64_t>(i), part.start[i], part.sizes[i]);
  }
  return part.missing_dim ? whole.squeeze(static_cast<std::int64_t>(*part.missing_dim)) : whole;
}

void fill_around(at::Tensor whole, const Join::Part& part, const at::Scalar& number) {
  for (std::size_t i = 0; i < part.start.size(); ++i) {
    const auto dim = static_cast<std::int64_t>(i);
    const std::int64_t end = part.start[i] + part.sizes[i];
    if (part.start[i] > 0) whole.narrow(dim, 0, part.start[i]).fill_(number);
    if (end < whole.size(dim)) whole.narrow(dim, end, whole.size(dim) - end).fill_(number);
    whole = whole.narrow(dim, part.start[i], part.sizes[i]);
  }
}

void run_join(const void* state, std::vector<c10::IValue>& stack) {
  const auto& join = *static_cast<const Join*>(state);
  const std::size_t count = join.op.schema().arguments().size();
  const std::vector<at::Tensor> tensors = tensors_of(std::span(stack).last(count));
  const at::Tensor whole = whole_around(tensors, join);
  if (!whole.defined()) return join.op.callBoxed(stack);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (join.parts[i].offset < 0) box(whole, join.parts[i]).copy_(tensors[i]);
  }
  if (join.fill) fill_around(whole, join.parts[0], *join.fill);
  stack.resize(stack.size() - count);
  stack.emplace_back(whole);
}

/// The operation that cuts, as it runs.
struct Cutter {
  c10::OperatorHandle op;
  std::vector<std::int64_t> sizes;
};

void run_cut(const void* state, std::vector<c10::IValue>& stack) {
  const auto& cutter = *static_cast<const Cutter*>(state);
  const std::size_t count = cutter.op.schema().arguments().size();
  const at::Tensor tensor = stack[stack.size() - count].toTensor();
  if (!tensor.sizes().equals(cutter.sizes)) return cutter.op.callBoxed(stack);
  stack.resize(stack.size() - count);
  stack.emplace_back(tensor);
}

}  // namespace

std::vector<Whole> wholes_of(const BoundSymbol& fused, const Trace& trace) {
  std::vector<Whole> wholes;
  for (const BoundSymbol* symbol = &fused + 1; symbol != trace.symbols.data() + trace.symbols.size(); ++symbol) {
    if (symbol->op != fusion::fused_operator() || symbol->nested.size() != 1) continue;
    auto found = find_whole(symbol->nested[0], trace);
    if (found && found->fused == &fused) wholes.push_back(std::move(found->whole));
  }
  return wholes;
}

std::vector<Cut> cuts_of(const BoundSymbol& fused, const Trace& trace) {
  std::vector<Cut> cuts;
  for (const BoundSymbol* symbol = &fused + 1; symbol != trace.symbols.data() + trace.symbols.size(); ++symbol) {
    if (symbol->op != fusion::fused_operator() || symbol->nested.size() != 1) continue;
    if (auto cut = cut_of(symbol->nested[0], fused, trace)) cuts.push_back(*std::move(cut));
  }
  return cuts;
}

bool takes_whole(const BoundSymbol& symbol, const Trace& trace) { return find_whole(symbol, trace).has_value(); }

void lower_whole(const BoundSymbol& symbol, const Trace& trace, runtime::ProgramBuilder& builder) {
  const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
  const Placements placements = side_by_side(symbol, trace).value();
  const auto [fused, whole] = find_whole(symbol, trace).value();
  const std::vector<ir::ValueId> results = ir::flat_results(*fused);
  auto join =
      std::make_shared<Join>(Join{op, {}, bridge::hints(whole.sizes), bridge::hints(whole.strides), placements.fill});
  for (const Placement& placement : placements.parts) {
    join->parts.push_back(
        {bridge::hints(placement.start), bridge::hints(placement.sizes), placement.missing_dim, -1, {}});
    for (const Whole::Part& part : whole.parts) {
      if (results[part.place] != placement.value) continue;
      join->parts.back().offset = part.offset.hint;
      join->parts.back().strides = bridge::hints(part.strides);
    }
  }
  builder.call(op, &run_join, std::move(join), operands_of(symbol, trace), result_slots(symbol), location_of(symbol));
}

bool takes_cut(const BoundSymbol& symbol, const Trace& trace) {
  return std::ranges::any_of(
      trace.symbols, [&](const BoundSymbol& fused) { return is_fusion(fused) && cut_of(symbol, fused, trace); });
}

void lower_cut(const BoundSymbol& symbol, const Trace& trace, runtime::ProgramBuilder& builder) {
  const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
  const auto cutter = std::make_shared<const Cutter>(Cutter{op, bridge::hints(result_type(symbol, trace)->sizes)});
  builder.call(op, &run_cut, cutter, operands_of(symbol, trace), result_slots(symbol), location_of(symbol));
}

}  // namespace thunder::executors::cpu
