#include "executors/cpu/epilogues.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "executors/cpu/activations.h"
#include "executors/cpu/convolution.h"
#include "executors/cpu/fusion.h"
#include "executors/cpu/matmuls.h"
#include "executors/cpu/single_operations.h"
#include "fusion/region.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

constexpr OperationWithActivation kOperations[] = {
    {"onednn_matmul_activation", "a matmul and its activation, by oneDNN", &matmul_takes_activation,
     &lower_matmul_with_activation},
    {"onednn_convolution_activation", "a convolution and its activation, by oneDNN", &convolution_takes_activation,
     &lower_convolution_with_activation},
};

const OperationWithActivation* find_operation_with_activation(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const auto takes = [&](const OperationWithActivation& operation) { return operation.takes(symbol, trace); };
  const auto* found = std::ranges::find_if(kOperations, takes);
  return found == std::end(kOperations) ? nullptr : found;
}

/// The activation that a symbol is, by itself or as the only one of a fusion; null where it is none.
const ir::BoundSymbol* activation_in(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const bool is_alone = fusion::is_kernel(symbol) && symbol.nested.size() == 1;
  const ir::BoundSymbol& inner = is_alone ? symbol.nested[0] : symbol;
  return activation_of(inner, trace) ? &inner : nullptr;
}

}  // namespace

void take_activations(ir::Trace& trace, const char* executor) {
  const ir::Uses uses(trace);
  for (ir::BoundSymbol& symbol : trace.symbols) {
    const ir::BoundSymbol* activation = activation_in(symbol, trace);
    if (activation == nullptr) continue;
    const ir::ValueId read = passes::value_argument(*activation, 0);
    const std::uint32_t maker = uses.maker(read);
    if (maker == passes::kNoPlace || uses.count(read) != 1) continue;
    ir::BoundSymbol& made = trace.symbols[maker];
    const OperationWithActivation* operation = find_operation_with_activation(made, trace);
    if (operation == nullptr) continue;
    ir::BoundSymbol copy = *activation;
    made = block_of({std::move(made), std::move(copy)}, operation->kind, operation->comment, executor);
    symbol.op = nullptr;
  }
  std::erase_if(trace.symbols, [](const ir::BoundSymbol& symbol) { return symbol.op == nullptr; });
}

const OperationWithActivation* find_with_activation(const ir::BoundSymbol& block) {
  const auto is_of_kind = [&](const OperationWithActivation& row) { return row.kind == fusion::kind_of(block); };
  const auto* found = std::ranges::find_if(kOperations, is_of_kind);
  return found == std::end(kOperations) ? nullptr : found;
}

}  // namespace thunder::executors::cpu
