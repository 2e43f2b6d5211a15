#include "compile/fusion_timing.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <variant>
#include <vector>

#include "base/timer.h"
#include "bridge/convert.h"
#include "compile/execution.h"
#include "executors/api/lowering.h"
#include "ir/extraction.h"
#include "ir/symbol_values.h"
#include "passes/symbol_facts.h"

namespace thunder::compile {
namespace {

/// Normally distributed, or zeros: indices that exist.
at::Tensor tensor_of(const ir::TensorType& type, at::Generator& generator) {
  const std::vector<std::int64_t> sizes = bridge::hints(type.sizes);
  const std::vector<std::int64_t> strides = bridge::hints(type.strides);
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) elements += std::max<std::int64_t>(sizes[i] - 1, 0) * strides[i];
  at::Tensor memory = at::zeros({elements}, at::TensorOptions(bridge::to_torch(type.dtype)));
  if (memory.is_floating_point()) memory.normal_(0, 1, generator);
  return at::as_strided(memory, sizes, strides);
}

c10::IValue input_of(const ir::Type& type, at::Generator& generator) {
  if (const auto* tensor = std::get_if<ir::TensorType>(&type)) return tensor_of(*tensor, generator);
  return std::get<ir::ScalarKind>(type) == ir::ScalarKind::kFloat ? c10::IValue(0.5) : c10::IValue(std::int64_t{1});
}

bool is_on_cpu(const ir::Type& type) {
  const auto* tensor = std::get_if<ir::TensorType>(&type);
  return tensor != nullptr ? bridge::to_torch(tensor->device).is_cpu() : std::holds_alternative<ir::ScalarKind>(type);
}

template <typename Function>
double seconds_of(std::int64_t count, const Function& function) {
  const Timer timer;
  for (std::int64_t i = 0; i < count; ++i) function();
  return timer.seconds() / static_cast<double>(count);
}

}  // namespace

std::optional<FusionTiming> time_fusion(const ir::BoundSymbol& symbol, const ir::Trace& trace,
                                        const Executors& executors, int rounds) {
  const ir::Trace alone = ir::extract(symbol, trace, "symbol");
  const auto claims = [&](const executors::Executor* executor) {
    return executor->claim(*executor, alone.symbols[0], alone);
  };
  if (std::ranges::none_of(executors, claims)) return std::nullopt;
  std::int64_t bytes = 0;
  for (const ir::ValueId id : alone.inputs) {
    if (!is_on_cpu(*alone.value(id).type)) return std::nullopt;
    bytes += passes::size_in_bytes(alone.tensor_type(id));
  }
  for (const ir::ValueId id : ir::flat_results(alone.symbols[0])) {
    if (id != ir::kNoValue) bytes += passes::size_in_bytes(alone.tensor_type(id));
  }

  const runtime::Program program = executors::lower_trace(alone, executors);
  at::Generator generator = at::detail::createCPUGenerator();
  std::vector<c10::IValue> inputs;
  for (const ir::ValueId id : alone.inputs) inputs.push_back(input_of(*alone.value(id).type, generator));
  std::vector<c10::IValue> taken;
  std::vector<c10::IValue> outputs(alone.outputs.size());
  const auto run = [&] {
    taken = inputs;
    program.run(std::span(taken), std::span(outputs));
  };
  const at::Tensor source = at::zeros({bytes / 2}, at::kByte);
  const at::Tensor target = at::zeros({bytes / 2}, at::kByte);
  const auto copy = [&] { target.copy_(source); };

  run();  // plans
  const std::int64_t count = std::clamp<std::int64_t>((1 << 22) / std::max<std::int64_t>(bytes, 1), 1, 100);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  FusionTiming timing{kNever, kNever};
  for (int round = 0; round < rounds; ++round) {
    timing.seconds = std::min(timing.seconds, seconds_of(count, run));
    timing.copy_seconds = std::min(timing.copy_seconds, seconds_of(count, copy));
  }
  return timing;
}

}  // namespace thunder::compile
