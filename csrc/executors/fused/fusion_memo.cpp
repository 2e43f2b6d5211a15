#include "executors/fused/fusion_memo.h"

#include "ir/printer.h"
#include "passes/symbol_facts.h"

namespace thunder::executors {

std::string key_of_region(const ir::Trace& region) {
  // Types with their strides stand in no text; those of inputs and outputs do.
  std::string key = ir::print(region, {.nested = false, .locations = false, .deletions = false});
  for (std::size_t i = 0; i < region.value_count(); ++i) {
    const ir::ValueId id{static_cast<std::uint32_t>(i)};
    for (const ir::Dim& dim : passes::operand_type(region, id)->strides) key += ir::to_string(dim) + ",";
    key += ';';
  }
  return key;
}

}  // namespace thunder::executors
