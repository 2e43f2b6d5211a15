#include "executors/cuda/fusion.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bridge/convert.h"
#include "executors/api/operands.h"
#include "ir/symbol_values.h"
#include "ir/trace_sizes.h"

namespace thunder::executors::cuda {
namespace {

/// Sizes and layouts that a fusion is kept for.
constexpr std::size_t kMostPlans = 64;
constexpr std::int64_t kWidestAlignment = 16;

const void* address_of(const at::Tensor& tensor) { return tensor.const_data_ptr(); }

/// The power of two that all addresses are multiples of, up to that of the widest load.
std::int64_t alignment_of(const c10::IValue* inputs, std::size_t count) {
  std::uintptr_t bits = kWidestAlignment;
  for (std::size_t i = 0; i < count; ++i) bits |= reinterpret_cast<std::uintptr_t>(address_of(inputs[i].toTensor()));
  return static_cast<std::int64_t>(bits & (~bits + 1));
}

at::Tensor make(const FusedRegion::Tensor& like) {
  return at::empty_strided(like.sizes, like.strides, at::TensorOptions(like.dtype).device(like.device));
}

/// The argument of a kernel's functions: addresses of arrays, that of scratch memory, numbers.
std::vector<std::byte> argument_of(const std::vector<const void*>& arrays, const void* scratch,
                                   const KernelSource& source) {
  const std::size_t array_count = std::max<std::size_t>(source.array_count, 1);
  const std::size_t number_count = std::max<std::size_t>(source.numbers.size(), 1);
  std::vector<std::byte> argument((array_count + 1 + number_count) * 8);
  std::memcpy(argument.data(), arrays.data(), std::min(source.array_count, arrays.size()) * 8);
  std::memcpy(argument.data() + array_count * 8, static_cast<const void*>(&scratch), 8);
  std::memcpy(argument.data() + (array_count + 1) * 8, source.numbers.data(), source.numbers.size() * 8);
  return argument;
}

}  // namespace

Fusion::Fusion(ir::Trace region, const fusion::Target& target, Engine& engine)
    : region_(std::move(region)), target_(target), engine_(engine), symbols_(ir::symbols_of(region_)) {
  kernel_ = fusion::Lowering::lower(region_.symbols[0], region_, fusion::traced_strides(region_), target_);
}

std::shared_ptr<const FusedRegion> Fusion::region_at(const std::vector<std::int64_t>& values) const {
  return std::make_shared<const FusedRegion>(symbols_.empty() ? region_ : ir::at_sizes(region_, values));
}

std::shared_ptr<const Fusion::Plan> Fusion::plan_for(const std::vector<std::int64_t>& values,
                                                     const c10::IValue* inputs) const {
  std::vector<std::int64_t> key = values;
  const std::size_t count = region_.inputs.size();
  for (std::size_t i = 0; i < count; ++i) {
    const at::Tensor& tensor = inputs[i].toTensor();
    if (tensor.layout() != at::kStrided) continue;  // does not fit its region
    key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
  }
  const std::int64_t alignment = alignment_of(inputs, count);
  key.push_back(alignment);
  const std::scoped_lock lock(mutex_);
  const auto known = std::ranges::find(plans_, key, [](const auto& plan) { return plan->key; });
  if (known != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, known);
    return plans_.front();
  }
  plans_.push_front(make_plan(std::move(key), values, region_at(values), inputs, alignment));
  if (plans_.size() > kMostPlans) plans_.pop_back();
  return plans_.front();
}

std::shared_ptr<const Fusion::Plan> Fusion::make_plan(std::vector<std::int64_t> key,
                                                      const std::vector<std::int64_t>& values,
                                                      std::shared_ptr<const FusedRegion> region,
                                                      const c10::IValue* inputs, std::int64_t alignment) const {
  const ir::Trace& sized = region->region();
  Plan plan{std::move(key), std::move(region), std::nullopt, nullptr};
  fusion::Strides strides;
  for (std::size_t i = 0; i < sized.inputs.size(); ++i) {
    strides.push_back(bridge::to_dims(inputs[i].toTensor().strides()));
  }
  std::optional<fusion::KernelGraph> other;
  const bool is_as_traced = strides == fusion::traced_strides(sized);
  if (!is_as_traced && plan.region->keeps_order(inputs)) {
    other = fusion::Lowering::lower(sized.symbols[0], sized, strides, target_);
  }
  const auto& kernel = is_as_traced ? kernel_ : other;
  if (kernel && !plan.region->outputs().empty()) {
    const at::Device device = plan.region->outputs()[0].device;
    plan.source = emit_source(kernel->at(is_as_traced ? ir::SymbolValues(values) : ir::SymbolValues()),
                              {alignment, engine_.multiprocessors(device)});
    if (plan.source) plan.module = engine_.compile(*plan.source, device);
  }
  return std::make_shared<const Plan>(std::move(plan));
}

bool Fusion::launch(const Plan& plan, const c10::IValue* inputs, std::vector<at::Tensor>& results) const {
  const FusedRegion& region = *plan.region;
  const at::Device device = region.outputs()[0].device;
  std::vector<const void*> arrays;
  for (std::size_t i = 0; i < region.inputs().size(); ++i) arrays.push_back(address_of(inputs[i].toTensor()));
  for (const FusedRegion::Tensor& output : region.outputs()) {
    results.push_back(make(output));
    arrays.push_back(results.back().mutable_data_ptr());
  }
  std::vector<at::Tensor> copied;  // results that are written once all inputs are read; else undefined
  for (const fusion::CopyTarget& copy : region.copies()) {
    const bool waits = copy.is_read && !plan.source->overwrites_inputs;
    copied.push_back(waits ? make(region.inputs()[copy.input]) : at::Tensor());
    arrays.push_back((waits ? copied.back() : inputs[copy.input].toTensor()).mutable_data_ptr());
  }
  at::Tensor scratch;
  if (plan.source->scratch_bytes > 0) {
    scratch = at::empty({plan.source->scratch_bytes}, at::TensorOptions(at::kByte).device(device));
  }
  const std::vector<std::byte> argument =
      argument_of(arrays, scratch.defined() ? scratch.mutable_data_ptr() : nullptr, *plan.source);
  for (const Launch& launch : plan.source->launches) {
    if (!engine_.launch(*plan.module, launch, argument, device)) return false;
  }
  for (std::size_t k = 0; k < copied.size(); ++k) {
    if (copied[k].defined()) inputs[region.copies()[k].input].toTensor().copy_(copied[k]);
  }
  return true;
}

void Fusion::run(std::vector<c10::IValue>& stack) const {
  const std::vector<std::int64_t> values = take_symbols(stack, symbols_);
  const std::size_t count = region_.inputs.size();
  const c10::IValue* inputs = stack.data() + (stack.size() - count);
  const std::shared_ptr<const Plan> plan = plan_for(values, inputs);
  std::vector<at::Tensor> results;
  if (!plan->source || !plan->region->fits(inputs) || !launch(*plan, inputs, results)) {
    return plan->region->run_operations(stack);
  }
  stack.resize(stack.size() - count);
  for (at::Tensor& result : results) stack.emplace_back(std::move(result));
}

}  // namespace thunder::executors::cuda
