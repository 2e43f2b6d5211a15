#include "compile/attention_kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "operators/attention.h"
#include "passes/symbol_facts.h"
#include "tracer/evaluate.h"
#include "tracer/trace_tensor.h"

namespace thunder::compile {
namespace {

/// Arguments of `aten::scaled_dot_product_attention`, which are those of the choice.
enum Place : std::size_t { kQuery, kKey, kValue, kMask, kDropout, kIsCausal, kScale, kEnableGroups, kArguments };

at::Tensor without_data(const ir::TensorType& type) {
  return tracer::make_trace_tensor(type, std::make_shared<tracer::TraceState>());
}

/// The kernel that PyTorch chooses (`SDPBackend`).
std::int64_t choice(const ir::BoundSymbol& symbol, const at::Tensor& query, const at::Tensor& key,
                    const at::Tensor& value, bool enable_groups, const c10::IValue& mask = {}) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_fused_sdp_choice", "");
  const auto* scale = symbol.arguments[kScale].get<double>();
  const auto* is_causal = symbol.arguments[kIsCausal].get<bool>();
  const auto* dropout = symbol.arguments[kDropout].get<double>();
  torch::jit::Stack stack{query,
                          key,
                          value,
                          mask,
                          dropout == nullptr ? 0.0 : *dropout,
                          is_causal != nullptr && *is_causal,
                          scale == nullptr ? c10::IValue() : c10::IValue(*scale),
                          enable_groups};
  tracer::evaluate_leaf(op, stack);
  return stack.back().toInt();
}

bool is_fused(std::int64_t kernel) {
  constexpr std::int64_t kFlash = 1;
  constexpr std::int64_t kCudnn = 3;
  return kernel >= kFlash && kernel <= kCudnn;
}

}  // namespace

bool takes_groups(const ir::Trace& trace, const passes::GroupedAttention& attention) {
  const ir::BoundSymbol& symbol = *attention.symbol;
  const auto operand = [&](std::size_t i) { return without_data(*passes::argument_type(symbol, trace, i)); };
  const at::Tensor query = operand(kQuery);
  const std::int64_t repeated = choice(symbol, query, operand(kKey), operand(kValue), false);
  return is_fused(repeated) &&
         choice(symbol, query, without_data(attention.key), without_data(attention.value), true) == repeated;
}

bool runs_by_equal_kernels(const ir::Trace& trace, const ir::Trace& other) {
  return std::ranges::all_of(trace.symbols, [&](const ir::BoundSymbol& symbol) {
    const operators::Attention* places = operators::find_attention(*symbol.op);
    const bool is_attention = places != nullptr && places->dropout && symbol.arguments.size() == kArguments;
    if (!is_attention) return true;
    const auto* groups = symbol.arguments[kEnableGroups].get<bool>();
    const auto choice_in = [&](const ir::Trace& of) {
      const auto operand = [&](std::size_t i) { return without_data(*passes::argument_type(symbol, of, i)); };
      const bool has_mask = passes::argument_type(symbol, of, kMask) != nullptr;
      return choice(symbol, operand(kQuery), operand(kKey), operand(kValue), groups != nullptr && *groups,
                    has_mask ? c10::IValue(operand(kMask)) : c10::IValue());
    };
    return choice_in(trace) == choice_in(other);
  });
}

}  // namespace thunder::compile
