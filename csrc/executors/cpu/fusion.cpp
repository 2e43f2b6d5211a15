#include "executors/cpu/fusion.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "executors/api/operands.h"
#include "fusion/region.h"
#include "ir/printer.h"
#include "ir/symbol_values.h"
#include "ir/trace_sizes.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

/// Sizes that a fusion is kept for.
constexpr std::size_t kMostSizes = 64;

struct Memo {
  std::mutex mutex;
  std::unordered_map<std::string, std::weak_ptr<const Fusion>> known;
};
Memo& memo() {
  static auto* const kMemo = new Memo;
  return *kMemo;
}

void add_dims(std::string& key, const ir::Dims& dims) {
  for (const ir::Dim& dim : dims) key += ir::to_string(dim) + ",";
}

}  // namespace

std::shared_ptr<const Fusion> Fusion::of(const ir::BoundSymbol& fused, const ir::Trace& trace) {
  ir::Trace region = fusion::region_of(fused, trace);
  // Types with their strides stand in no text; those of inputs and outputs do.
  std::string key = ir::print(region, {.nested = false, .locations = false, .deletions = false});
  for (std::size_t i = 0; i < region.value_count(); ++i) {
    add_dims(key, passes::operand_type(region, ir::ValueId{static_cast<std::uint32_t>(i)})->strides);
    key += ';';
  }
  Memo& table = memo();
  {
    const std::scoped_lock lock(table.mutex);
    if (auto known = table.known[key].lock()) return known;
  }
  auto made = std::make_shared<const Fusion>(std::move(region));
  const std::scoped_lock lock(table.mutex);
  table.known[key] = made;
  return made;
}

Fusion::Fusion(ir::Trace region) : region_(std::move(region)), symbols_(ir::symbols_of(region_)) {
  if (symbols_.empty()) {
    only_ = std::make_shared<const SizedFusion>(region_, nullptr);
  } else {
    kernel_ = fusion::Lowering::lower(region_.symbols[0], region_, fusion::traced_strides(region_), kTarget);
  }
}

std::shared_ptr<const SizedFusion> Fusion::at(SymbolValues values) const {
  const std::scoped_lock lock(mutex_);
  const auto known = std::ranges::find(sized_, values, &decltype(sized_)::value_type::first);
  if (known != sized_.end()) {
    sized_.splice(sized_.begin(), sized_, known);
    return known->second;
  }
  std::optional<fusion::SizedKernel> kernel;
  if (kernel_) kernel = kernel_->at(values);
  auto made = std::make_shared<const SizedFusion>(ir::at_sizes(region_, values), kernel ? &*kernel : nullptr);
  sized_.emplace_front(std::move(values), made);
  if (sized_.size() > kMostSizes) sized_.pop_back();
  return made;
}

void Fusion::run(std::vector<c10::IValue>& stack) const {
  if (only_ != nullptr) return only_->run(stack);
  at(take_symbols(stack, symbols_))->run(stack);
}

std::int64_t Fusion::bytes_of(const ir::BoundSymbol& fused, const ir::Trace& trace) {
  std::int64_t bytes = 0;
  for (const ir::ValueId id : ir::distinct_values(fused.arguments)) {
    bytes += passes::size_in_bytes(trace.tensor_type(id));
  }
  for (const ir::ValueId id : ir::flat_results(fused)) bytes += passes::size_in_bytes(trace.tensor_type(id));
  return bytes;
}

}  // namespace thunder::executors::cpu
