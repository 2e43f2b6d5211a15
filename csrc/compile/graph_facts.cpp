#include "compile/graph_facts.h"

#include <algorithm>
#include <optional>
#include <span>

#include "fusion/region.h"
#include "operators/facts.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::compile {
namespace {

using operators::Fact;

/// Adds a symbol, or, in the place of a block, what is in it.
void add_operations(const ir::BoundSymbol& symbol, ir::Trace& to) {
  if (symbol.op->style != ir::CallStyle::kBlock) {
    to.add(symbol);
    return;
  }
  for (const ir::BoundSymbol& operation : symbol.nested) add_operations(operation, to);
}

ir::Trace without_blocks(const ir::Trace& trace) {
  ir::Trace plain = trace.empty_copy("without_blocks");
  for (const ir::BoundSymbol& symbol : trace.symbols) add_operations(symbol, plain);
  return plain;
}

bool is_of_torch(const ir::Operator& op) {
  return op.style == ir::CallStyle::kTorchOperator &&
         (op.name.starts_with("aten::") || operators::has_fact(op, Fact::kCallsPyTorch));
}

/// Whether an operation draws from a generator: attention does where it drops something.
bool draws(const ir::BoundSymbol& symbol) {
  constexpr std::size_t kDropout = 4;
  const ir::Operator& op = *symbol.op;
  const bool is_attention = operators::has_fact(op, Fact::kIsAttention);
  if (is_attention && symbol.arguments.size() > kDropout) return symbol.arguments[kDropout] != ir::Argument(0.0);
  return op.random || operators::has_fact(op, Fact::kDrawsRandomNumbers);
}

/// Why an operation may do something else than launch the same kernels each time; empty: it may not.
std::string obstacle_of(const ir::BoundSymbol& symbol) {
  const ir::Operator& op = *symbol.op;
  if (passes::is_constant(symbol)) return {};
  if (op.style == ir::CallStyle::kPrimitive) return op.name + " looks at data, or runs Python";
  if (!is_of_torch(op)) return op.name + " is not an operation of PyTorch";
  if (draws(symbol)) return op.name + " draws random numbers";
  if (operators::communicates(op)) return op.name + " communicates with other processes";
  if (operators::facts_of(op).has_any(Fact::kReadsData | Fact::kShapeFollowsData | Fact::kAsksAboutTensor)) {
    return op.name + " reads data";
  }
  if (operators::facts_of(op).has_any(Fact::kTurns | Fact::kResizes | Fact::kReplacesStorage)) {
    return op.name + " changes what a tensor is, and not only its elements";
  }
  return {};
}

/// Why a value is nothing that a graph can hold; empty: it is a tensor on the device, which is set by the first one.
std::string obstacle_of(const ir::Trace& trace, ir::ValueId id, std::optional<ir::Device>& device) {
  const ir::TensorType* type = trace.tensor_type(id);
  if (type == nullptr) return "a value is no tensor";
  if (type->device.type != ir::DeviceType::kCuda) return "a tensor is not on a GPU";
  if (!device) device = type->device;
  return type->device == *device ? std::string() : "tensors are on several devices";
}

std::string find_obstacle(const ir::Trace& plain) {
  std::optional<ir::Device> device;
  std::string obstacle;
  const auto check = [&](ir::ValueId id) {
    if (obstacle.empty()) obstacle = obstacle_of(plain, id, device);
  };
  std::ranges::for_each(plain.inputs, check);
  for (const ir::BoundSymbol& symbol : plain.symbols) {
    if (obstacle.empty()) obstacle = obstacle_of(symbol);
    passes::for_each_result(symbol, check);
    if (!obstacle.empty()) return obstacle;
  }
  return obstacle.empty() && !device ? "there is no tensor" : obstacle;
}

/// Each of the first results is an input as it is, or has memory that neither an input nor another result shares.
bool have_own_memory(const ir::Trace& plain, std::size_t count, const passes::AliasAnalysis& aliases) {
  std::vector<std::uint32_t> seen;
  for (const ir::Argument& output : std::span(plain.outputs).first(std::min(count, plain.outputs.size()))) {
    const auto* id = output.get<ir::ValueId>();
    if (id == nullptr) return false;
    if (std::ranges::find(plain.inputs, *id) != plain.inputs.end()) continue;
    const std::uint32_t set = aliases.set_of(*id);
    if (!aliases.is_own_memory(*id) || std::ranges::find(seen, set) != seen.end()) return false;
    seen.push_back(set);
  }
  return true;
}

/// Whether a symbol, or the block that it is, has kernels to launch.
bool launches(const ir::BoundSymbol& symbol) {
  return symbol.op->style == ir::CallStyle::kBlock || !(passes::is_constant(symbol) || operators::is_view(*symbol.op));
}

}  // namespace

GraphFacts graph_facts(const ir::Trace& final, std::size_t own_outputs) {
  const ir::TensorType* first = final.inputs.empty() ? nullptr : final.tensor_type(final.inputs.front());
  if (first != nullptr && first->device.type != ir::DeviceType::kCuda) return {.obstacle = "a tensor is not on a GPU"};
  const ir::Trace plain = without_blocks(final);
  GraphFacts facts;
  facts.obstacle = find_obstacle(plain);
  if (!facts.obstacle.empty()) return facts;
  const passes::AliasAnalysis aliases(plain);
  if (!have_own_memory(plain, own_outputs, aliases))
    facts.obstacle = "a result is a view, or no tensor that the program computes";
  for (const ir::ValueId input : plain.inputs) facts.written.push_back(aliases.is_written(input));
  facts.launches = static_cast<int>(std::ranges::count_if(final.symbols, launches));
  for (const ir::BoundSymbol& symbol : plain.symbols) {
    if (operators::is_view(*symbol.op)) continue;
    passes::for_each_result(symbol,
                            [&](ir::ValueId id) { facts.bytes += passes::size_in_bytes(plain.tensor_type(id)); });
  }
  return facts;
}

}  // namespace thunder::compile
