#include "tracer/general_trace.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <vector>

#include "bridge/constant.h"
#include "ir/symbol_values.h"
#include "operators/facts.h"
#include "tracer/custom_gradient.h"
#include "tracer/data_dependence.h"
#include "tracer/numbers.h"
#include "tracer/operators.h"
#include "tracer/python_function.h"

namespace thunder::tracer {
namespace {

bool is_statistic(const ir::BoundSymbol& symbol, std::size_t argument) {
  return symbol.op->parameters[argument].name.starts_with("running_");
}

/// Whether a symbol copies what the program has written to an input into it: no matter how large that is, and in which
/// order it lies.
bool fills_input(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  if (symbol.op->name != "aten::copy_") return false;
  const auto* target = symbol.arguments[0].get<ir::ValueId>();
  return target != nullptr && std::ranges::find(trace.inputs, *target) != trace.inputs.end();
}

/// Whether a value is memory that an operation has just taken (a mask to be drawn), of the layout that its type tells.
bool is_new_memory(const ir::Trace& trace, ir::ValueId value) {
  return std::ranges::any_of(trace.symbols, [&](const ir::BoundSymbol& symbol) {
    const bool takes_memory = operators::has_fact(*symbol.op, operators::Fact::kIsUninitialized);
    return takes_memory && !symbol.op->mutates && ir::flat_results(symbol) == std::vector{value};
  });
}

/// Whether an operation may write to a tensor whose sizes depend on symbols, other than to all of an input or to new
/// memory: one of another size would be laid out otherwise.
bool writes_to_symbols(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  if (fills_input(trace, symbol)) return false;
  bool writes = false;
  for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
    if (!symbol.op->mutates && !is_statistic(symbol, i)) continue;
    ir::for_each_value(symbol.arguments[i], [&](ir::ValueId id) {
      const ir::TensorType* type = trace.tensor_type(id);
      const bool is_list = is_statistic(symbol, i) && type != nullptr && type->sizes.size() == 1;
      const bool is_known = is_list || type == nullptr || !ir::has_symbols(*type) || is_new_memory(trace, id);
      writes = writes || !is_known;
    });
  }
  return writes;
}

bool is_plain_operation(const ir::BoundSymbol& symbol) {
  if (symbol.op == tensor_constant_operator()) return true;
  if (symbol.op->style != ir::CallStyle::kTorchOperator) return false;
  if (!symbol.op->effect) return true;
  // An operation without results that does not communicate may only raise an error; others update running statistics.
  return !symbol.op->results.empty() || !operators::communicates(*symbol.op);
}

}  // namespace

ir::AreAlike constants_alike(const ir::TraceContext& context) {
  return [&context](ir::ObjectConstant left, ir::ObjectConstant right) {
    if (context.objects[left.index].kind == ir::ObjectKind::kPythonFunction) {
      return context.objects[left.index].owner == context.objects[right.index].owner;
    }
    if (context.objects[left.index].kind != ir::ObjectKind::kTensor) return false;
    if (context.objects[right.index].kind != ir::ObjectKind::kTensor) return false;
    const at::Tensor& one = bridge::tensor_of(context, ir::Argument(left));
    const at::Tensor& other = bridge::tensor_of(context, ir::Argument(right));
    return one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type() && one.device() == other.device() &&
           (one.is_alias_of(other) || (one.is_cpu() && at::equal(one, other)));
  };
}

bool has_only_operations(const ir::Trace& trace) {
  const auto is_plain = [&](const ir::BoundSymbol& symbol) {
    return is_plain_operation(symbol) && !writes_to_symbols(trace, symbol);
  };
  return std::ranges::all_of(trace.symbols, [&](const ir::BoundSymbol& symbol) {
    if (symbol.op == custom_gradient_operator()) {
      return std::ranges::all_of(custom_gradient_of(symbol, trace).symbols, is_plain);
    }
    const bool is_known = symbol.op == item_operator() || symbol.op == python_function_operator();
    return is_known || looks_at_data(symbol) || is_plain(symbol);
  });
}

}  // namespace thunder::tracer
