#include "executors/cpu/fusion.h"

#include <algorithm>
#include <string>
#include <utility>

#include "executors/api/operands.h"
#include "executors/fused/fusion_memo.h"
#include "fusion/region.h"
#include "ir/symbol_values.h"
#include "ir/trace_sizes.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

/// Sizes that a fusion is kept for.
constexpr std::size_t kMostSizes = 64;

}  // namespace

std::shared_ptr<const Fusion> Fusion::of(const ir::BoundSymbol& fused, const ir::Trace& trace) {
  static auto* const kMemo = new FusionMemo<Fusion>;
  ir::Trace region = fusion::region_of(fused, trace);
  const std::string key = key_of_region(region);
  return kMemo->get(key, [&] { return std::make_shared<const Fusion>(std::move(region)); });
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
