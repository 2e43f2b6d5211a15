#include "executors/cpu/executor.h"

#include <memory>
#include <ranges>
#include <string>
#include <utility>

#include "executors/api/lowering.h"
#include "executors/api/operands.h"
#include "executors/cpu/epilogues.h"
#include "executors/cpu/fusion.h"
#include "executors/cpu/native_operations.h"
#include "executors/cpu/single_operations.h"
#include "executors/cpu/tile_emission.h"
#include "fusion/assembly.h"
#include "fusion/block_results.h"
#include "fusion/buffer_regions.h"
#include "fusion/operations.h"
#include "fusion/region.h"
#include "ir/symbol_values.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

using fusion::FusionRole;

std::string describe_bytes(std::int64_t bytes) {
  if (bytes < 10240) return std::to_string(bytes) + " B";
  if (bytes < (10 << 20)) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes >> 20) + " MiB";
}

std::string describe(const ir::BoundSymbol& fused, const ir::Trace& trace) {
  return std::to_string(fused.nested.size()) + " operations, " + describe_bytes(Fusion::bytes_of(fused, trace));
}

bool prepacks(const Executor& self) { return &self == &kPrepackingExecutor; }

/// For each value whether somebody must find it in memory. Parts of it are then best computed where they stand there.
std::vector<bool> values_in_memory(const ir::Trace& trace) {
  std::vector<bool> in_memory(trace.value_count(), false);
  const auto mark = [&](ir::ValueId id) { in_memory[index_of(id)] = true; };
  for (const ir::Argument& output : trace.outputs) ir::for_each_value(output, mark);
  for (const ir::BoundSymbol& symbol : std::views::reverse(trace.symbols)) {
    const FusionRole role = fusion::role_of(symbol, trace, kTarget);
    const bool is_fused = role.kind != FusionRole::Kind::kNone;
    const bool passes_on = is_fused && in_memory[index_of(role.over)] &&
                           (role.kind == FusionRole::Kind::kView || fusion::buffer_regions_of(symbol, trace));
    if (!is_fused || passes_on) passes::for_each_argument(symbol, mark);
  }
  return in_memory;
}

std::optional<ir::Trace> fuse(const Executor& self, const ir::Trace& trace) {
  const std::vector<bool> in_memory = values_in_memory(trace);
  const auto role = [&](const ir::BoundSymbol& symbol, const ir::Trace& of) {
    const FusionRole role = fusion::role_of(symbol, of, kTarget);
    const bool stays =
        role.kind != FusionRole::Kind::kNone && in_memory[index_of(role.over)] && fusion::buffer_regions_of(symbol, of);
    return stays ? FusionRole{} : role;
  };
  ir::Trace fused = fusion::fuse(trace, {.role = role}, self.name, &describe);
  take_activations(fused, self.name);
  take_single_operations(fused, self.name, prepacks(self));
  return fused;
}

bool claim(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  return fusion::is_fused_by(symbol, self.name) || find_native_operation(symbol, trace) != nullptr;
}

void run(const void* state, std::vector<c10::IValue>& stack) { static_cast<const Fusion*>(state)->run(stack); }

void lower(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace,
           runtime::ProgramBuilder& builder) {
  if (const NativeOperation* native = find_native_operation(symbol, trace)) {
    lower_native(*native, symbol, trace, builder);
    return;
  }
  if (const SingleOperation* single = find_single_operation(symbol)) {
    single->lower(symbol.nested[0], trace, builder);
    return;
  }
  if (const OperationWithActivation* operation = find_with_activation(symbol)) {
    operation->lower(symbol.nested[0], symbol.nested[1], trace, prepacks(self), builder);
    return;
  }
  const auto fusion = Fusion::of(symbol, trace);
  lower_block(symbol, &run, fusion, fusion->symbols(), fusion::written_inputs(symbol), builder);
}

}  // namespace

const Executor kExecutor{.name = "cpu", .claim = &claim, .lower = &lower, .fuse = &fuse, .target = &kTarget};
const Executor kPrepackingExecutor{.name = "cpu", .claim = &claim, .lower = &lower, .fuse = &fuse, .target = &kTarget};

}  // namespace thunder::executors::cpu
