#include "fusion/region.h"

#include <string>
#include <utility>

#include "ir/builder.h"
#include "ir/extraction.h"
#include "ir/symbol_values.h"

namespace thunder::fusion {

const ir::Operator* fused_operator() {
  static const ir::Operator* const kRow = new ir::Operator(ir::parse_operator(
      "prims::fused(str executor, Tensor[] tensors, *, str kind=\"kernel\") -> Tensor[]", ir::CallStyle::kBlock));
  return kRow;
}

bool is_fused_by(const ir::BoundSymbol& symbol, std::string_view executor) {
  const auto* name = symbol.op == fused_operator() ? symbol.arguments.at(0).get<std::string>() : nullptr;
  return name != nullptr && *name == executor;
}

std::string_view kind_of(const ir::BoundSymbol& block) { return std::get<std::string>(block.arguments.at(2).content); }

bool is_kernel(const ir::BoundSymbol& symbol) { return symbol.op == fused_operator() && kind_of(symbol) == kKernel; }
bool is_batch(const ir::BoundSymbol& symbol) { return symbol.op == fused_operator() && kind_of(symbol) == kBatch; }

std::span<const ir::BoundSymbol> members_or_itself(const ir::BoundSymbol& symbol) {
  return is_batch(symbol) ? std::span(symbol.nested) : std::span(&symbol, 1);
}

ir::BoundSymbol make_block(std::string_view executor, std::string_view kind, ir::ArgumentList reads,
                           ir::ArgumentList gives, std::vector<ir::BoundSymbol> operations) {
  ir::BoundSymbol block;
  block.op = fused_operator();
  block.arguments = {ir::Argument(std::string(executor)), ir::Argument(std::move(reads)),
                     ir::Argument(std::string(kind))};
  block.results = {ir::Argument(std::move(gives))};
  block.location = operations.front().location;
  block.nested = std::move(operations);
  return block;
}

ir::BoundSymbol make_block(std::string_view executor, std::string_view kind, ir::BoundSymbol operation) {
  ir::ArgumentList reads;
  ir::ArgumentList gives;
  for (const ir::ValueId id : ir::distinct_values(operation.arguments)) reads.emplace_back(id);
  for (const ir::ValueId id : ir::flat_results(operation)) gives.emplace_back(id);
  operation.nested.clear();
  return make_block(executor, kind, std::move(reads), std::move(gives), {std::move(operation)});
}

ir::Trace region_of(const ir::BoundSymbol& fused, const ir::Trace& trace) {
  ir::Trace region = ir::extract(fused, trace, "fusion");
  ir::BoundSymbol& symbol = region.symbols[0];
  symbol.location = {};
  symbol.comment.clear();
  for (ir::BoundSymbol& nested : symbol.nested) nested.comment.clear();
  for (std::uint32_t i = 0; i < region.value_count(); ++i) {
    const ir::TensorType* type = region.tensor_type(ir::ValueId{i});
    if (type == nullptr || type->storage_offset == ir::Dim(0)) continue;
    ir::TensorType first = *type;
    first.storage_offset = 0;
    region.set_type(ir::ValueId{i}, ir::make_type(std::move(first)));
  }
  return region;
}

}  // namespace thunder::fusion
