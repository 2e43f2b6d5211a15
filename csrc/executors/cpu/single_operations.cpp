#include "executors/cpu/single_operations.h"

#include <string>
#include <utility>

#include "executors/cpu/convolution.h"
#include "executors/cpu/depthwise_operation.h"
#include "executors/cpu/fusion.h"
#include "executors/cpu/products.h"
#include "executors/cpu/wholes.h"
#include "ir/symbol_values.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

constexpr SingleOperation kSingleOperations[] = {
    {"parts that are computed where they stand", &takes_whole, &lower_whole},
    {"a piece that is computed alone", &takes_cut, &lower_cut},
    {"a convolution that keeps oneDNN's layout of its filters", &takes_convolution, &lower_convolution},
    {"filter gradient of a depthwise convolution", &takes_depthwise, &lower_depthwise},
    {"a product by oneDNN", &takes_product, &lower_product},
};

const SingleOperation* find(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  if (symbol.op->style != ir::CallStyle::kTorchOperator || symbol.op->handle == nullptr) return nullptr;
  for (const SingleOperation& operation : kSingleOperations) {
    if (operation.takes(symbol, trace)) return &operation;
  }
  return nullptr;
}

}  // namespace

bool is_plain(const at::Tensor& tensor, at::ScalarType dtype, std::int64_t dims) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.dim() == dims && tensor.scalar_type() == dtype &&
         tensor.numel() > 0 && !tensor.is_neg();
}

void take_single_operations(ir::Trace& trace, const char* executor) {
  for (ir::BoundSymbol& symbol : trace.symbols) {
    const SingleOperation* operation = find(symbol, trace);
    if (operation == nullptr) continue;
    ir::BoundSymbol block;
    block.op = fusion_operator();
    block.location = symbol.location;
    block.comment = operation->comment;
    ir::ArgumentList reads;
    for (const ir::ValueId id : ir::distinct_values(symbol.arguments)) reads.emplace_back(id);
    ir::ArgumentList gives;
    passes::for_each_result(symbol, [&](ir::ValueId id) { gives.emplace_back(id); });
    block.arguments = {ir::Argument(std::string(executor)), ir::Argument(std::move(reads))};
    block.results = {ir::Argument(std::move(gives))};
    symbol.nested.clear();
    block.nested.push_back(std::move(symbol));
    symbol = std::move(block);
  }
}

const SingleOperation* find_single_operation(const ir::BoundSymbol& block, const ir::Trace& trace) {
  return block.op == fusion_operator() && block.nested.size() == 1 ? find(block.nested[0], trace) : nullptr;
}

}  // namespace thunder::executors::cpu
