#include "executors/cpu/single_operations.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "executors/cpu/attention.h"
#include "executors/cpu/convolution.h"
#include "executors/cpu/depthwise_operation.h"
#include "executors/cpu/fusion.h"
#include "executors/cpu/matmuls.h"
#include "fusion/region.h"
#include "ir/symbol_values.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

constexpr SingleOperation kSingleOperations[] = {
    {"onednn_convolution", "a convolution that keeps oneDNN's layout of its filters", &takes_convolution,
     &lower_convolution},
    {"onednn_attention", "attention of matmuls by oneDNN", &takes_attention, &lower_attention},
    {"depthwise_filter_gradient", "filter gradient of a depthwise convolution", &takes_depthwise, &lower_depthwise},
    {"onednn_matmul", "a matmul by oneDNN", &takes_matmul, &lower_matmul},
};

/// These first, where the user promises that weights move their versions when they change.
constexpr SingleOperation kPrepackedOperations[] = {
    {"prepacked_convolution", "a convolution of prepacked filters", &takes_convolution, &lower_prepacked_convolution},
    {"prepacked_matmul", "a matmul of a prepacked weight", &takes_prepacked_matmul, &lower_prepacked_matmul},
};

const SingleOperation* find(const ir::BoundSymbol& symbol, const ir::Trace& trace, bool prepacks) {
  if (symbol.op->style != ir::CallStyle::kTorchOperator || symbol.op->handle == nullptr) return nullptr;
  const auto takes = [&](const SingleOperation& operation) { return operation.takes(symbol, trace); };
  if (prepacks) {
    const auto* found = std::ranges::find_if(kPrepackedOperations, takes);
    if (found != std::end(kPrepackedOperations)) return found;
  }
  const auto* found = std::ranges::find_if(kSingleOperations, takes);
  return found == std::end(kSingleOperations) ? nullptr : found;
}

}  // namespace

ir::BoundSymbol block_of(std::vector<ir::BoundSymbol> symbols, const char* kind, const char* comment,
                         const char* executor) {
  std::vector<ir::ValueId> inside;
  ir::ArgumentList reads;
  for (ir::BoundSymbol& symbol : symbols) {
    symbol.nested.clear();
    for (const ir::ValueId id : ir::distinct_values(symbol.arguments)) {
      if (std::ranges::find(inside, id) == inside.end()) reads.emplace_back(id);
    }
    passes::for_each_result(symbol, [&](ir::ValueId id) { inside.push_back(id); });
  }
  ir::ArgumentList gives;
  passes::for_each_result(symbols.back(), [&](ir::ValueId id) { gives.emplace_back(id); });
  ir::BoundSymbol block = fusion::make_block(executor, kind, std::move(reads), std::move(gives), std::move(symbols));
  block.comment = comment;
  return block;
}

void take_single_operations(ir::Trace& trace, const char* executor, bool prepacks) {
  for (ir::BoundSymbol& symbol : trace.symbols) {
    const SingleOperation* operation = find(symbol, trace, prepacks);
    if (operation == nullptr) continue;
    symbol = block_of({std::move(symbol)}, operation->kind, operation->comment, executor);
  }
}

const SingleOperation* find_single_operation(const ir::BoundSymbol& block) {
  const auto is_of_kind = [&](const SingleOperation& row) { return row.kind == fusion::kind_of(block); };
  const auto* found = std::ranges::find_if(kSingleOperations, is_of_kind);
  if (found != std::end(kSingleOperations)) return found;
  found = std::ranges::find_if(kPrepackedOperations, is_of_kind);
  return found == std::end(kPrepackedOperations) ? nullptr : found;
}

}  // namespace thunder::executors::cpu
