#include "transforms/recorded_layout.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstdint>

#include "operators/facts.h"
#include "tracer/operators.h"

namespace thunder::transforms {

bool can_repeat(const ir::Trace& trace) {
  return std::ranges::all_of(trace.symbols, [](const ir::BoundSymbol& symbol) {
    return symbol.op->style == ir::CallStyle::kTorchOperator || symbol.op == tracer::tensor_constant_operator();
  });
}

at::Tensor as_recorded(const ir::Trace& trace, const at::Tensor& tensor, ir::ValueId id) {
  const ir::TensorType* type = trace.tensor_type(id);
  if (type == nullptr) return tensor;
  std::vector<std::int64_t> strides;
  for (const ir::Dim& stride : type->strides) strides.push_back(stride.hint);
  if (tensor.strides().equals(strides)) return tensor;
  static const auto kRestride = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("thunder::restride", "")
                                    .typed<at::Tensor(const at::Tensor&, at::IntArrayRef)>();
  return kRestride.call(tensor, strides);
}

void restore_layouts(const ir::Trace& trace, const ir::BoundSymbol& symbol, torch::jit::Stack& stack) {
  if (!symbol.op->random && !operators::has_fact(*symbol.op, operators::Fact::kReadsStrides)) return;
  for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
    const auto* id = symbol.arguments[i].get<ir::ValueId>();
    if (id != nullptr && stack[i].isTensor()) stack[i] = as_recorded(trace, stack[i].toTensor(), *id);
  }
}

void restore_outputs(const ir::Trace& trace, std::vector<at::Tensor>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined()) outputs[i] = as_recorded(trace, outputs[i], *trace.outputs[i].get<ir::ValueId>());
  }
}

}  // namespace thunder::transforms
