#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <exception>

#include "bridge/constant.h"
#include "bridge/convert.h"
#include "ir/symbol_values.h"
#include "ir/trace_sizes.h"
#include "tracer/evaluate.h"
#include "tracer/operators.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"
#include "transforms/inner_gradient.h"
#include "transforms/rule_table.h"

namespace thunder::transforms {
namespace {

/// Calls the operation on trace tensors, with the autograd layer, and looks at what requires grad.
std::vector<bool> results_requiring_grad(const ir::BoundSymbol& symbol, const ir::Trace& trace,
                                         const std::unordered_map<std::uint32_t, bool>& requires_grad) {
  std::unordered_map<std::uint32_t, at::Tensor> tensors;
  bridge::ArgumentWriter writer;
  writer.value = [&](ir::ValueId id) {
    at::Tensor& tensor = tensors[index_of(id)];
    if (trace.tensor_type(id) == nullptr) {  // a number that the program read
      if (!tensor.defined()) tensor = at::scalar_tensor(1.0);
      tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    if (!tensor.defined()) {
      tensor = tracer::make_trace_tensor(*trace.tensor_type(id), std::make_shared<tracer::TraceState>());
      const auto found = requires_grad.find(index_of(id));
      if (found != requires_grad.end() && found->second) tensor.set_requires_grad(true);
    }
    return c10::IValue(tensor);
  };
  writer.object = [&](ir::ObjectConstant object) { return bridge::value_of(*trace.context(), object); };
  const c10::OperatorHandle& op = tracer::handle_of(*symbol.op);
  std::vector<c10::IValue> arguments;
  for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
    arguments.push_back(bridge::to_ivalue(symbol.arguments[i], *op.schema().arguments()[i].real_type(), writer));
  }
  std::vector<bool> flags;
  tracer::ResultTypes types;
  try {
    types = tracer::infer_top(op, arguments);
  } catch (const std::exception&) {
    // PyTorch has no derivative; a rule of ours may be one.
    RuleCall call;
    call.arguments = arguments;
    if (find_rule(op, call) == nullptr) throw;
    return std::vector<bool>(ir::flat_results(symbol).size(), true);
  }
  for (const auto& result : types.results) {
    if (result.is_other) flags.push_back(false);
    for (const tracer::ResultType& tensor : result.tensors) {
      flags.push_back(tensor.type != nullptr && std::get<ir::TensorType>(*tensor.type).requires_grad);
    }
  }
  return flags;
}

bool is_pure_operator(const ir::BoundSymbol& symbol) {
  return symbol.op->style == ir::CallStyle::kTorchOperator && !tracer::handle_of(*symbol.op).schema().is_mutable();
}

}  // namespace

void mark_differentiable(const ir::Trace& trace, std::span<const ir::BoundSymbol> symbols,
                         std::unordered_map<std::uint32_t, bool>& requires_grad) {
  const tracer::EvaluateOnly nothing_recorded;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const c10::AutoGradMode with_gradients(true);
  for (const ir::BoundSymbol& symbol : symbols) {
    const std::vector<ir::ValueId> read = ir::distinct_values(symbol.arguments);
    const bool any = std::ranges::any_of(read, [&](ir::ValueId id) {
      const auto found = requires_grad.find(index_of(id));
      return found != requires_grad.end() && found->second;
    });
    if (!any || !is_pure_operator(symbol)) continue;
    const std::vector<bool> flags = results_requiring_grad(symbol, trace, requires_grad);
    const std::vector<ir::ValueId> results = ir::flat_results(symbol);
    for (std::size_t i = 0; i < results.size() && i < flags.size(); ++i) {
      if (results[i] != ir::kNoValue) requires_grad[index_of(results[i])] = flags[i];
    }
  }
}

std::vector<bool> differentiable_outputs(const ir::Trace& trace, const std::vector<bool>& inputs,
                                         std::span<const std::optional<bool>> known) {
  // Operators are called with numbers; what requires grad is the same at all sizes.
  if (!ir::symbols_of(trace).empty()) {
    return differentiable_outputs(ir::at_sizes(trace, ir::traced_symbols(trace)), inputs, known);
  }
  std::unordered_map<std::uint32_t, bool> requires_grad;
  for (std::size_t i = 0; i < inputs.size(); ++i) requires_grad[index_of(trace.inputs[i])] = inputs[i];
  const auto is_differentiable = [&](ir::ValueId id) { return requires_grad[index_of(id)]; };
  const auto is_known = [&](ir::ValueId id) {
    return id == ir::kNoValue || (index_of(id) < known.size() && known[index_of(id)]);
  };
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    const std::vector<ir::ValueId> results = ir::flat_results(symbol);
    if (!std::ranges::all_of(results, is_known)) {
      const bool any = std::ranges::any_of(ir::distinct_values(symbol.arguments), is_differentiable);
      for (const ir::ValueId id : results) requires_grad[index_of(id)] = any;
      if (any && is_pure_operator(symbol)) mark_differentiable(trace, {&symbol, 1}, requires_grad);
    }
    for (const ir::ValueId id : results) {
      if (id != ir::kNoValue && is_known(id)) requires_grad[index_of(id)] = *known[index_of(id)];
    }
  }
  std::vector<bool> outputs;
  for (const ir::Argument& output : trace.outputs) {
    const auto* id = output.get<ir::ValueId>();
    outputs.push_back(id != nullptr && is_differentiable(*id));
  }
  return outputs;
}

}  // namespace thunder::transforms
