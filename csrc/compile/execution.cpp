#include "compile/execution.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <shared_mutex>
#include <utility>

#include "bridge/convert.h"
#include "executors/api/lowering.h"
#include "ir/extraction.h"
#include "ir/splice.h"
#include "ir/substitution.h"
#include "ir/symbol_values.h"
#include "tracer/data_dependence.h"
#include "tracer/operators.h"

namespace thunder::compile {
namespace {

using executors::Executor;

/// Such an operation runs as the program called it: what an executor would put in its place has no shape to be
/// recorded.
bool shape_follows_data(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  if (symbol.op->handle == nullptr) return false;
  const bridge::ArgumentWriter writer{[&](ir::ValueId id) -> c10::IValue {
                                        const ir::TensorType* type = trace.tensor_type(id);
                                        const at::ScalarType dtype =
                                            type == nullptr ? at::kDouble : bridge::to_torch(type->dtype);
                                        return at::empty({0}, at::TensorOptions(dtype).device(c10::kMeta));
                                      },
                                      [](ir::ObjectConstant) { return c10::IValue(); }};
  const c10::OperatorHandle& op = tracer::handle_of(*symbol.op);
  std::vector<c10::IValue> arguments;
  for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
    arguments.push_back(bridge::to_ivalue(symbol.arguments[i], *op.schema().arguments()[i].real_type(), writer));
  }
  return tracer::shape_follows_data(op, arguments);
}

bool replaces(const Executor& executor, const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  return executor.replaces != nullptr && executor.replaces(executor, symbol, trace) &&
         !shape_follows_data(symbol, trace);
}

/// Copies a trace, with some of its symbols expanded.
class Expansion {
 public:
  Expansion(const ir::Trace& trace, const Executors& executors)
      : executors_(executors), result_(trace.empty_copy("transform_for_execution")), values_(trace.value_count()) {
    for (const ir::BoundSymbol& symbol : trace.symbols) place(symbol, 0, /*expands_first=*/true);
    values_.apply(result_.outputs);
  }

  [[nodiscard]] ir::Trace take() { return std::move(result_); }

 private:
  /// `first`: executors before it do not see the symbol. `expands_first`: it may expand the symbol, not only claim it.
  void place(ir::BoundSymbol symbol, std::size_t first, bool expands_first) {
    values_.apply(symbol.arguments);
    for (std::size_t i = first; i < executors_.size(); ++i) {
      const Executor& executor = *executors_[i];
      if (executor.claim(executor, symbol, result_)) break;
      if ((i > first || expands_first) && replaces(executor, symbol, result_)) {
        expand(symbol, i);
        return;
      }
    }
    result_.add(std::move(symbol));
  }

  void expand(const ir::BoundSymbol& symbol, std::size_t index) {
    const Executor& executor = *executors_[index];
    const ir::Trace part = executor.expand(executor, symbol, result_);
    std::vector<ir::Argument> inputs;
    for (const ir::ValueId id : ir::distinct_values(symbol.arguments)) inputs.emplace_back(id);
    const std::size_t begin = result_.symbols.size();
    const ir::ArgumentList outputs = ir::splice(result_, part, inputs);
    std::vector<ir::BoundSymbol> made(
        std::make_move_iterator(result_.symbols.begin() + static_cast<std::ptrdiff_t>(begin)),
        std::make_move_iterator(result_.symbols.end()));
    result_.symbols.resize(begin);
    for (ir::BoundSymbol& each : made) {
      each.location = symbol.location;
      if (each.comment.empty()) each.comment = std::string("executor ") + executor.name;
      place(std::move(each), index, /*expands_first=*/false);
    }
    const std::vector<ir::ValueId> results = ir::flat_results(symbol);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i] == ir::kNoValue) continue;
      ir::Argument output = outputs.at(i);
      values_.apply(output);
      values_.set(results[i], std::move(output));
    }
  }

  const Executors& executors_;
  ir::Trace result_;
  ir::Substitution values_;  ///< results of expanded symbols
};

/// The user's executors are made at run time, and may serve what others run.
std::optional<ir::Trace> run_passes(const ir::Trace& trace, const Executors& executors, bool of_user) {
  std::optional<ir::Trace> fused;
  for (const Executor* executor : executors) {
    if (executor->fuse == nullptr || (executor->replaces != nullptr) != of_user) continue;
    if (auto rewritten = executor->fuse(*executor, fused ? *fused : trace)) fused = std::move(rewritten);
  }
  return fused;
}

bool replaces_anything(const Executors& executors) {
  return std::ranges::any_of(executors, [](const Executor* executor) { return executor->replaces != nullptr; });
}

struct Rules {
  std::shared_mutex mutex;
  std::map<std::pair<const Executor*, const ir::Operator*>, const transforms::GradRule*> table;
};

Rules& rules() {
  static auto* const kRules = new Rules;
  return *kRules;
}

const transforms::GradRule* find_rule(const Executor* executor, const ir::Operator* operation) {
  const std::shared_lock lock(rules().mutex);
  const auto found = rules().table.find({executor, operation});
  return found == rules().table.end() ? nullptr : found->second;
}

}  // namespace

ir::Trace transform_for_execution(const ir::Trace& trace, const Executors& executors) {
  return Expansion(trace, executors).take();
}

std::optional<ir::Trace> run_fusion_passes(const ir::Trace& trace, const Executors& executors) {
  return run_passes(trace, executors, /*of_user=*/true);
}

std::optional<ir::Trace> run_built_in_fusion_passes(const ir::Trace& trace, const Executors& executors) {
  return run_passes(trace, executors, /*of_user=*/false);
}

runtime::Program lower_directly(const ir::Trace& trace, const Executors& executors, bool waits) {
  if (!replaces_anything(executors)) return executors::lower_trace(trace, executors, waits);
  const ir::Trace expanded = transform_for_execution(trace, executors);
  const std::optional<ir::Trace> fused = run_fusion_passes(expanded, executors);
  return executors::lower_trace(fused ? *fused : expanded, executors, waits);
}

const Executor* serving_executor(const ir::BoundSymbol& symbol, const ir::Trace& trace, const Executors& executors) {
  for (const Executor* executor : executors) {
    if (executor->claim(*executor, symbol, trace)) return nullptr;
    if (replaces(*executor, symbol, trace)) return executor;
  }
  return nullptr;
}

void set_rule(const Executor& executor, const ir::Operator* operation, const transforms::GradRule* rule) {
  const std::scoped_lock lock(rules().mutex);
  rules().table.insert_or_assign({&executor, operation}, rule);
}

ExecutorScope::ExecutorScope(const Executors& executors) {
  if (!replaces_anything(executors)) return;
  claims_.emplace([executors](const ir::BoundSymbol& symbol,
                              const ir::Trace& trace) -> std::optional<transforms::ClaimedOperation> {
    const Executor* executor = serving_executor(symbol, trace, executors);
    if (executor == nullptr) return std::nullopt;
    return transforms::ClaimedOperation{executor->name, find_rule(executor, symbol.op), symbol.op};
  });
  realizes_.emplace(
      [executors](const ir::BoundSymbol& symbol, const ir::Trace& trace,
                  const std::function<at::Tensor(ir::ValueId)>& value) -> std::optional<std::vector<at::Tensor>> {
        if (serving_executor(symbol, trace, executors) == nullptr) return std::nullopt;
        const runtime::Program program = lower_directly(ir::extract(symbol, trace, "symbol"), executors);
        std::vector<at::Tensor> inputs;
        for (const ir::ValueId id : ir::distinct_values(symbol.arguments)) inputs.push_back(value(id));
        std::vector<at::Tensor> outputs(program.output_count());
        program.run(std::span(inputs), std::span(outputs));
        return outputs;
      });
}

}  // namespace thunder::compile
