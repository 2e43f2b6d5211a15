#include "executors/cpu/sized_fusion.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <utility>

#include "bridge/convert.h"
#include "executors/cpu/threads.h"
#include "fusion/lowering.h"

namespace thunder::executors::cpu {
namespace {

at::Tensor make_result(const FusedRegion::Tensor& like) {
  return at::Tensor(at::detail::empty_strided_generic(like.sizes, like.strides, c10::GetCPUAllocator(),
                                                      c10::DispatchKeySet(c10::DispatchKey::CPU), like.dtype));
}

}  // namespace

SizedFusion::SizedFusion(ir::Trace region, const fusion::SizedKernel* kernel) : region_(std::move(region)) {
  Strides strides;
  for (const FusedRegion::Tensor& input : region_.inputs()) strides.push_back(input.strides);
  if (kernel == nullptr) {
    first_ = make_plan(std::move(strides));
  } else {
    first_ = std::make_unique<Plan>(Plan{std::move(strides), emit_tiles(*kernel)});
  }
}

std::optional<TileProgram> SizedFusion::make_program(const Strides& strides) const {
  fusion::Strides dims;
  for (const std::vector<std::int64_t>& of_input : strides) dims.push_back(bridge::to_dims(of_input));
  const auto kernel = fusion::Lowering::lower(region_.region().symbols[0], region_.region(), dims, kTarget);
  return kernel ? emit_tiles(kernel->at()) : std::nullopt;
}

std::unique_ptr<SizedFusion::Plan> SizedFusion::make_plan(Strides strides) const {
  auto program = make_program(strides);
  return std::make_unique<Plan>(Plan{std::move(strides), std::move(program)});
}

bool SizedFusion::fits(const Plan& plan, const c10::IValue* inputs) {
  for (std::size_t i = 0; i < plan.strides.size(); ++i) {
    if (!has_strides(inputs[i].toTensor(), plan.strides[i])) return false;
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
  for (std::size_t i = 0; i < region_.inputs().size(); ++i) strides.push_back(inputs[i].toTensor().strides().vec());
  others_.push_back(make_plan(std::move(strides)));
  if (!region_.keeps_order(inputs)) others_.back()->program.reset();
  return *others_.back();
}

void SizedFusion::run(std::vector<c10::IValue>& stack) const {
  const std::size_t input_count = region_.inputs().size();
  const std::vector<fusion::CopyTarget>& copies = region_.copies();
  const c10::IValue* inputs = stack.data() + (stack.size() - input_count);
  if (!region_.fits(inputs)) return region_.run_operations(stack);
  const Plan& plan = plan_for(inputs);
  if (!plan.program) return region_.run_operations(stack);
  std::vector<char*> arrays;
  arrays.reserve(input_count + region_.outputs().size() + copies.size());
  for (std::size_t i = 0; i < input_count; ++i) {
    arrays.push_back(static_cast<char*>(const_cast<void*>(inputs[i].toTensor().const_data_ptr())));
  }
  std::vector<at::Tensor> results;
  for (const FusedRegion::Tensor& output : region_.outputs()) {
    results.push_back(make_result(output));
    arrays.push_back(static_cast<char*>(results.back().mutable_data_ptr()));
  }
  std::vector<at::Tensor> copied;  // results that are written once all inputs are read; else undefined
  for (const fusion::CopyTarget& copy : copies) {
    const bool waits = copy.is_read && !plan.program->overwrites_inputs;
    copied.push_back(waits ? make_result(region_.inputs()[copy.input]) : at::Tensor());
    const at::Tensor& to = waits ? copied.back() : inputs[copy.input].toTensor();
    arrays.push_back(static_cast<char*>(to.mutable_data_ptr()));
  }
  // An index that is out of bounds: PyTorch says so.
  if (!cpu::run(*plan.program, arrays.data(), &run_tasks)) return region_.run_operations(stack);
  for (std::size_t k = 0; k < copies.size(); ++k) {
    if (copied[k].defined()) inputs[copies[k].input].toTensor().copy_(copied[k]);
  }
  stack.resize(stack.size() - input_count);
  for (at::Tensor& result : results) stack.emplace_back(std::move(result));
}

}  // namespace thunder::executors::cpu
