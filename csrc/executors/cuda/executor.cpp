#include "executors/cuda/executor.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executors/api/operands.h"
#include "executors/cuda/attention.h"
#include "executors/cuda/batch.h"
#include "executors/cuda/device_queue.h"
#include "executors/cuda/driver_engine.h"
#include "executors/cuda/fusion.h"
#include "executors/cuda/pooling.h"
#include "executors/cuda_kernels/target.h"
#include "fusion/assembly.h"
#include "fusion/block_results.h"
#include "fusion/operations.h"
#include "fusion/region.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cuda {
namespace {

const Backend& backend_of(const Executor& self) { return *static_cast<const Backend*>(self.state); }

std::string describe(const ir::BoundSymbol& fused, const ir::Trace& /*trace*/) {
  return std::to_string(fused.nested.size()) + " operations";
}

/// A kernel reads and writes the memory of one device.
bool is_on_one_device(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  std::optional<ir::Device> device;
  bool is_one = true;
  const auto compare = [&](ir::ValueId id) {
    const ir::TensorType* type = passes::operand_type(trace, id);
    if (type == nullptr) return;
    is_one = is_one && device.value_or(type->device) == type->device;
    device = type->device;
  };
  passes::for_each_argument(symbol, compare);
  passes::for_each_result(symbol, compare);
  return is_one;
}

std::optional<ir::Trace> fuse(const Executor& self, const ir::Trace& trace) {
  const fusion::Target& target = *backend_of(self).target;
  const auto is_accepted = [&](const ir::BoundSymbol& symbol) {
    bool is_any = false;
    passes::for_each_result(symbol, [&](ir::ValueId id) {
      const ir::TensorType* type = trace.tensor_type(id);
      is_any = is_any || (type != nullptr && target.accepts(*type));
    });
    return is_any;
  };
  if (std::ranges::none_of(trace.symbols, is_accepted)) return std::nullopt;
  const auto role = [&](const ir::BoundSymbol& symbol, const ir::Trace& of) {
    return is_on_one_device(symbol, of) ? fusion::role_of(symbol, of, target) : fusion::FusionRole{};
  };
  ir::Trace fused = fusion::fuse(trace, {.role = role}, self.name, &describe);
  fused = with_attention_blocks(std::move(fused), target, self.name);
  return with_pooling_blocks(std::move(fused), target, self.name);
}

bool claim(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& /*trace*/) {
  return fusion::is_fused_by(symbol, self.name);
}

void run(const void* state, std::vector<c10::IValue>& stack) { static_cast<const Fusion*>(state)->run(stack); }

void run_batch(const void* state, std::vector<c10::IValue>& stack) { static_cast<const Batch*>(state)->run(stack); }

void lower(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace,
           runtime::ProgramBuilder& builder) {
  const Backend& backend = backend_of(self);
  const auto make_queue = [&]() -> std::shared_ptr<runtime::LaunchQueue> {
    return backend.engine->queues_launches() ? std::make_shared<DeviceQueue>(*backend.engine) : nullptr;
  };
  if (fusion::is_batch(symbol)) {
    const auto made = std::make_shared<const Batch>(symbol, trace, *backend.target, *backend.engine, builder.waits());
    for (const auto& fusion : made->fusions()) builder.add_pending(fusion);
    lower_block(symbol, &run_batch, made, made->symbols(), fusion::written_inputs(symbol), builder);
    return builder.launches_by(make_queue);
  }
  const auto made = Fusion::of(symbol, trace, *backend.target, *backend.engine, {.waits = builder.waits()});
  builder.add_pending(made);
  lower_block(symbol, &run, made, made->symbols(), fusion::written_inputs(symbol), builder);
  builder.launches_by(make_queue);
}

std::vector<KernelText> kernels(const Executor& self, const ir::BoundSymbol& block, const ir::Trace& trace) {
  std::vector<KernelText> made;
  for (const ir::BoundSymbol& each : fusion::members_or_itself(block)) {
    const auto known = Fusion::find(each, trace, *backend_of(self).engine, fusion::is_batch(block));
    made.push_back(known == nullptr ? KernelText() : known->text());
  }
  return made;
}

}  // namespace

const Executor& executor() {
  static const fusion::Target kOfDriver = [] {
    fusion::Target target = kTarget;
    target.memory = &memory_of;
    return target;
  }();
  static const Backend kBackend{&kOfDriver, &driver_engine()};
  static const Executor kExecutor = make_executor("cuda", kBackend);
  return kExecutor;
}

Executor make_executor(const char* name, const Backend& backend) {
  return {.name = name,
          .claim = &claim,
          .lower = &lower,
          .fuse = &fuse,
          .kernels = &kernels,
          .target = backend.target,
          .state = &backend};
}

}  // namespace thunder::executors::cuda
