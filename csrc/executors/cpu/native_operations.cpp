#include "executors/cpu/native_operations.h"

#include <memory>
#include <string>
#include <unordered_map>

#include "executors/api/operands.h"
#include "executors/cpu/indexed_sums.h"
#include "executors/cpu/random_operations.h"

namespace thunder::executors::cpu {
namespace {

using Stack = std::vector<c10::IValue>;

bool is_on_cpu(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const ir::TensorType* type = trace.tensor_type(symbol.results.at(0));
  return type != nullptr && type->device.type == ir::DeviceType::kCpu;
}

constexpr NativeOperation kNativeOperations[] = {
    {"aten::bernoulli_.float", &run_bernoulli_in_place},
    {"aten::bernoulli.p", &run_bernoulli},
    {"aten::dropout", &run_dropout},
    {"aten::index_put", &run_index_put},
    {"aten::index_put_", &run_index_put_in_place},
    {"aten::native_dropout", &run_native_dropout},
    {"thunder::bernoulli_from_state", &run_bernoulli_from_state},
    {"thunder::bernoulli_with_state", &run_bernoulli_with_state},
    {"thunder::native_dropout_mask_from_state", &run_native_dropout_mask_from_state},
    {"thunder::native_dropout_with_state", &run_native_dropout_with_state},
};

struct Native {
  const NativeOperation& operation;
  c10::OperatorHandle op;
};

void run_native(const void* state, Stack& stack) {
  const auto& native = *static_cast<const Native*>(state);
  if (!native.operation.run(stack)) native.op.callBoxed(stack);
}

}  // namespace

const NativeOperation* find_native_operation(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const ir::Operator& op = *symbol.op;
  if (op.style != ir::CallStyle::kTorchOperator || op.handle == nullptr) return nullptr;
  static const auto* const kByName = [] {
    auto* table = new std::unordered_map<std::string_view, const NativeOperation*>;
    for (const NativeOperation& operation : kNativeOperations) table->emplace(operation.name, &operation);
    return table;
  }();
  const auto found = kByName->find(op.overload.empty() ? op.name : op.name + "." + op.overload);
  return found != kByName->end() && is_on_cpu(symbol, trace) ? found->second : nullptr;
}

void lower_native(const NativeOperation& operation, const ir::BoundSymbol& symbol, const ir::Trace& trace,
                  runtime::ProgramBuilder& builder) {
  const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
  builder.call(op, &run_native, std::make_shared<const Native>(Native{operation, op}), operands_of(symbol, trace),
               result_slots(symbol), location_of(symbol));
}

}  // namespace thunder::executors::cpu
