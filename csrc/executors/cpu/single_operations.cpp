#include "executors/cpu/single_operations.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "executors/cpu/attention.h"
#include "executors/cpu/convolution.h"
#include "executors/cpu/depthwise_operation.h"
#include "executors/cpu/fusion.h"
#include "executors/cpu/products.h"
#include "fusion/region.h"
#include "ir/symbol_values.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

constexpr SingleOperation kSingleOperations[] = {
    {"a convolution that keeps oneDNN's layout of its filters", &takes_convolution, &lower_convolution},
    {"attention of products by oneDNN", &takes_attention, &lower_attention},
    {"filter gradient of a depthwise convolution", &takes_depthwise, &lower_depthwise},
    {"a product by oneDNN", &takes_product, &lower_product},
};

/// These first, where the user promises that weights move their versions when they change.
constexpr SingleOperation kPrepackedOperations[] = {
    {"a convolution of prepacked filters", &takes_convolution, &lower_prepacked_convolution},
    {"a product of a prepacked weight", &takes_prepacked_product, &lower_prepacked_product},
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

bool is_plain(const at::Tensor& tensor, at::ScalarType dtype, std::int64_t dims) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.dim() == dims && tensor.scalar_type() == dtype &&
         tensor.numel() > 0 && !tensor.is_neg() && !tensor._is_zerotensor();
}

ir::BoundSymbol block_of(std::vector<ir::BoundSymbol> symbols, const char* comment, const char* executor) {
  ir::BoundSymbol block;
  block.op = fusion::fused_operator();
  block.location = symbols.front().location;
  block.comment = comment;
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
  block.arguments = {ir::Argument(std::string(executor)), ir::Argument(std::move(reads))};
  block.results = {ir::Argument(std::move(gives))};
  block.nested = std::move(symbols);
  return block;
}

void take_single_operations(ir::Trace& trace, const char* executor, bool prepacks) {
  for (ir::BoundSymbol& symbol : trace.symbols) {
    const SingleOperation* operation = find(symbol, trace, prepacks);
    if (operation != nullptr) symbol = block_of({std::move(symbol)}, operation->comment, executor);
  }
}

const SingleOperation* find_single_operation(const ir::BoundSymbol& block, const ir::Trace& trace, bool prepacks) {
  const bool is_single = block.op == fusion::fused_operator() && block.nested.size() == 1;
  return is_single ? find(block.nested[0], trace, prepacks) : nullptr;
}

}  // namespace thunder::executors::cpu
