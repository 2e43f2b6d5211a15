#include "executors/fused/fused_region.h"

#include <algorithm>
#include <span>
#include <utility>

#include "bridge/convert.h"
#include "executors/api/lowering.h"
#include "ir/symbol_values.h"
#include "passes/symbol_facts.h"

namespace thunder::executors {
namespace {

bool is_plain(const at::Tensor& tensor, const FusedRegion::Tensor& traced) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.device() == traced.device && !tensor.is_neg() &&
         !tensor._is_zerotensor() && tensor.scalar_type() == traced.dtype && tensor.sizes().equals(traced.sizes);
}

/// Whether dimensions follow one another in memory as they were traced to. Those that do not move (of what was
/// expanded) fit anywhere.
bool is_in_order(const at::Tensor& tensor, const std::vector<std::int64_t>& traced) {
  for (std::size_t i = 0; i < traced.size(); ++i) {
    for (std::size_t j = 0; j < traced.size(); ++j) {
      const auto [a, b] = std::pair(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j));
      const bool counts = tensor.size(a) != 1 && tensor.size(b) != 1 && tensor.stride(a) != 0 && tensor.stride(b) != 0;
      if (counts && traced[i] > traced[j] && tensor.stride(a) < tensor.stride(b)) return false;
    }
  }
  return true;
}

}  // namespace

bool has_strides(const at::Tensor& tensor, const std::vector<std::int64_t>& expected) {
  for (std::size_t d = 0; d < expected.size(); ++d) {
    const auto dim = static_cast<std::int64_t>(d);
    if (tensor.stride(dim) != expected[d] && tensor.size(dim) != 1) return false;
  }
  return true;
}

FusedRegion::FusedRegion(ir::Trace region)
    : region_(std::move(region)), copies_(fusion::copy_targets(region_.symbols[0])) {
  const auto describe = [&](ir::ValueId id) {
    const ir::TensorType& type = *passes::operand_type(region_, id);
    return Tensor{bridge::hints(type.sizes), bridge::hints(type.strides), bridge::to_torch(type.dtype),
                  bridge::to_torch(type.device)};
  };
  for (const ir::ValueId id : region_.inputs) inputs_.push_back(describe(id));
  for (const ir::ValueId id : ir::flat_results(region_.symbols[0])) outputs_.push_back(describe(id));
}

bool FusedRegion::fits(const c10::IValue* inputs) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!is_plain(inputs[i].toTensor(), inputs_[i])) return false;
  }
  return std::ranges::all_of(copies_, [&](const fusion::CopyTarget& copy) {
    return has_strides(inputs[copy.input].toTensor(), inputs_[copy.input].strides);
  });
}

bool FusedRegion::keeps_order(const c10::IValue* inputs) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!is_in_order(inputs[i].toTensor(), inputs_[i].strides)) return false;
  }
  return true;
}

void FusedRegion::run_operations(std::vector<c10::IValue>& stack) const {
  std::call_once(operations_once_, [&] {
    ir::Trace operations = region_;
    operations.symbols = region_.symbols[0].nested;
    operations_ = lower_operators(operations);
  });
  std::vector<c10::IValue> inputs(stack.end() - static_cast<std::ptrdiff_t>(inputs_.size()), stack.end());
  stack.resize(stack.size() - inputs_.size());
  std::vector<c10::IValue> results(outputs_.size());
  operations_.run(std::span(inputs), std::span(results));
  for (c10::IValue& result : results) stack.push_back(std::move(result));
}

}  // namespace thunder::executors
