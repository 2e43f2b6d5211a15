#include "executors/cpu/executor.h"

#include <memory>
#include <string>
#include <utility>

#include "executors/api/lowering.h"
#include "executors/cpu/destinations.h"
#include "executors/cpu/fusion.h"
#include "executors/cpu/native_operations.h"
#include "executors/cpu/operations.h"
#include "executors/cpu/products.h"
#include "executors/cpu/single_operations.h"
#include "ir/symbol_values.h"
#include "passes/fusion_assembly.h"

namespace thunder::executors::cpu {
namespace {

std::string describe_bytes(std::int64_t bytes) {
  if (bytes < 10240) return std::to_string(bytes) + " B";
  if (bytes < (10 << 20)) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes >> 20) + " MiB";
}

std::string describe(const ir::BoundSymbol& fused, const ir::Trace& trace) {
  return std::to_string(fused.nested.size()) + " operations, " + describe_bytes(Fusion::bytes_of(fused, trace));
}

bool prepacks(const Executor& self) { return &self == &kPrepackingExecutor; }

std::optional<ir::Trace> fuse(const Executor& self, const ir::Trace& trace) {
  static const passes::FusionModel kModel{.role = &role_of};
  ir::Trace fused = passes::fuse(trace, kModel, fusion_operator(), self.name, &describe);
  take_activations(fused, self.name);
  take_single_operations(fused, self.name, prepacks(self));
  return fused;
}

bool claim(const Executor& /*self*/, const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  return symbol.op == fusion_operator() || find_native_operation(symbol, trace) != nullptr;
}

void run(const void* state, std::vector<c10::IValue>& stack) { static_cast<const Fusion*>(state)->run(stack); }

void lower(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace,
           runtime::ProgramBuilder& builder) {
  if (const NativeOperation* native = find_native_operation(symbol, trace)) {
    lower_native(*native, symbol, trace, builder);
    return;
  }
  if (const SingleOperation* single = find_single_operation(symbol, trace, prepacks(self))) {
    single->lower(symbol.nested[0], trace, builder);
    return;
  }
  if (is_product_with_activation(symbol, trace)) {
    lower_product_with_activation(symbol, trace, prepacks(self), builder);
    return;
  }
  std::vector<runtime::Operand> operands;
  for (const ir::ValueId id : ir::distinct_values(symbol.arguments)) operands.push_back({slot_of(id)});
  std::vector<runtime::ResultSlots> results;
  for (const ir::ValueId id : ir::flat_results(symbol)) results.emplace_back(slot_of(id));
  builder.call("a fusion of " + symbol.comment, &run, Fusion::of(symbol, trace, destinations_of(symbol, trace)),
               std::move(operands), std::move(results), location_of(symbol));
}

}  // namespace

const Executor kExecutor{.name = "cpu", .claim = &claim, .lower = &lower, .fuse = &fuse};
const Executor kPrepackingExecutor{.name = "cpu", .claim = &claim, .lower = &lower, .fuse = &fuse};

}  // namespace thunder::executors::cpu
