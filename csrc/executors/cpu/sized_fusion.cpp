#include "executors/cpu/sized_fusion.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "executors/api/lowering.h"
#include "executors/cpu/threads.h"
#include "fusion/lowering.h"
#include "fusion/region.h"
#include "ir/printer.h"
#include "ir/symbol_values.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

bool is_in_memory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.is_cpu() && !tensor.is_neg() &&
         !tensor._is_zerotensor();
}

}  // namespace

SizedFusion::SizedFusion(ir::Trace region, const fusion::SizedKernel* kernel)
    : region_(std::move(region)), copies_(fusion::copy_targets(region_.symbols[0])) {
  const auto describe = [&](ir::ValueId id) {
    const ir::TensorType& type = *passes::operand_type(region_, id);
    return Tensor{bridge::hints(type.sizes), bridge::hints(type.strides), bridge::to_torch(type.dtype)};
  };
  Strides strides;
  for (const ir::ValueId id : region_.inputs) {
    inputs_.push_back(describe(id));
    strides.push_back(inputs_.back().strides);
  }
  for (const ir::ValueId id : ir::flat_results(region_.symbols[0])) outputs_.push_back(describe(id));
  if (kernel == nullptr) {
    first_ = make_plan(std::move(strides));
  } else {
    first_ = std::make_unique<Plan>(Plan{std::move(strides), emit_tiles(*kernel)});
  }
}

std::optional<TileProgram> SizedFusion::make_program(const Strides& strides) const {
  fusion::Strides dims;
  for (const std::vector<std::int64_t>& of_input : strides) dims.push_back(bridge::to_dims(of_input));
  const auto kernel = fusion::Lowering::lower(region_.symbols[0], region_, dims, kTarget);
  return kernel ? emit_tiles(kernel->at()) : std::nullopt;
}

std::unique_ptr<SizedFusion::Plan> SizedFusion::make_plan(Strides strides) const {
  auto program = make_program(strides);
  return std::make_unique<Plan>(Plan{std::move(strides), std::move(program)});
}

/// But for those of dimensions of size one, which mean nothing.
bool has_strides(const at::Tensor& tensor, const std::vector<std::int64_t>& expected) {
  for (std::size_t d = 0; d < expected.size(); ++d) {
    const auto dim = static_cast<std::int64_t>(d);
    if (tensor.stride(dim) != expected[d] && tensor.size(dim) != 1) return false;
  }
  return true;
}

bool SizedFusion::fits(const Plan& plan, const c10::IValue* inputs) {
  for (std::size_t i = 0; i < plan.strides.size(); ++i) {
    if (!has_strides(inputs[i].toTensor(), plan.strides[i])) return false;
  }
  return true;
}

/// Dimensions follow one another in memory as they were traced to: then results lie as they would in eager. Those that
/// do not move (of what was expanded) fit anywhere.
bool keeps_order(const at::Tensor& tensor, const std::vector<std::int64_t>& traced) {
  for (std::size_t i = 0; i < traced.size(); ++i) {
    for (std::size_t j = 0; j < traced.size(); ++j) {
      const auto [a, b] = std::pair(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j));
      const bool counts = tensor.size(a) != 1 && tensor.size(b) != 1 && tensor.stride(a) != 0 && tensor.stride(b) != 0;
      if (counts && traced[i] > traced[j] && tensor.stride(a) < tensor.stride(b)) return false;
    }
  }
  return true;
}

const SizedFusion::Plan& SizedFusion::plan_for(const c10::IValue* inputs) const {
  if (fits(*first_, inputs)) return *first_;
  const std::scoped_lock lock(mutex_);
  for (const auto& plan : others_) {
    if (fits(*plan, inputs)) return *plan;
  }
  Strides strides;
  bool in_order = true;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    strides.push_back(inputs[i].toTensor().strides().vec());
    in_order = in_order && keeps_order(inputs[i].toTensor(), inputs_[i].strides);
  }
  others_.push_back(make_plan(std::move(strides)));
  if (!in_order) others_.back()->program.reset();
  return *others_.back();
}

bool SizedFusion::is_as_traced(const c10::IValue* inputs) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const at::Tensor& tensor = inputs[i].toTensor();
    if (!is_in_memory(tensor) || tensor.scalar_type() != inputs_[i].dtype || !tensor.sizes().equals(inputs_[i].sizes)) {
      return false;
    }
  }
  // The order of a target's elements in memory is fixed by the trace.
  return std::ranges::all_of(copies_, [&](const fusion::CopyTarget& copy) {
    return has_strides(inputs[copy.input].toTensor(), inputs_[copy.input].strides);
  });
}

at::Tensor SizedFusion::make(const Tensor& like) {
  return at::Tensor(at::detail::empty_strided_generic(like.sizes, like.strides, c10::GetCPUAllocator(),
                                                      c10::DispatchKeySet(c10::DispatchKey::CPU), like.dtype));
}

void SizedFusion::run(std::vector<c10::IValue>& stack) const {
  const c10::IValue* inputs = stack.data() + (stack.size() - inputs_.size());
  if (!is_as_traced(inputs)) return run_operations(stack);
  const Plan& plan = plan_for(inputs);
  if (!plan.program) return run_operations(stack);
  std::vector<char*> arrays;
  arrays.reserve(inputs_.size() + outputs_.size() + copies_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    arrays.push_back(static_cast<char*>(const_cast<void*>(inputs[i].toTensor().const_data_ptr())));
  }
  std::vector<at::Tensor> results;
  for (const Tensor& output : outputs_) {
    results.push_back(make(output));
    arrays.push_back(static_cast<char*>(results.back().mutable_data_ptr()));
  }
  std::vector<at::Tensor> copied;  // results that are written once all inputs are read; else undefined
  for (const fusion::CopyTarget& copy : copies_) {
    const bool waits = copy.is_read && !plan.program->overwrites_inputs;
    copied.push_back(waits ? make(inputs_[copy.input]) : at::Tensor());
    const at::Tensor& to = waits ? copied.back() : inputs[copy.input].toTensor();
    arrays.push_back(static_cast<char*>(to.mutable_data_ptr()));
  }
  // An index that is out of bounds: PyTorch says so.
  if (!cpu::run(*plan.program, arrays.data(), &run_tasks)) return run_operations(stack);
  for (std::size_t k = 0; k < copies_.size(); ++k) {
    if (copied[k].defined()) inputs[copies_[k].input].toTensor().copy_(copied[k]);
  }
  stack.resize(stack.size() - inputs_.size());
  for (at::Tensor& result : results) stack.emplace_back(std::move(result));
}

void SizedFusion::run_operations(std::vector<c10::IValue>& stack) const {
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

}  // namespace thunder::executors::cpu
