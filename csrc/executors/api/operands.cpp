#include "executors/api/operands.h"

#include <ATen/core/jit_type.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "bridge/constant.h"
#include "bridge/convert.h"
#include "bridge/memory_order.h"
#include "ir/symbol_values.h"
#include "operators/facts.h"

namespace thunder::executors {
namespace {

/// Whether the argument is put together at each call.
bool varies(const ir::Argument& argument) {
  bool found = ir::has_symbols(argument);
  ir::for_each_value(argument, [&](ir::ValueId) { found = true; });
  return found;
}

}  // namespace

runtime::SizeOperand size_operand(const ir::Dim& dim) {
  const auto compute = [](const void* state, ir::SymbolValues symbols) {
    return ir::evaluate(*static_cast<const ir::Dim*>(state), symbols);
  };
  std::vector<std::uint32_t> symbols;
  ir::add_symbols(dim, symbols);
  return {compute, std::make_shared<const ir::Dim>(dim), std::move(symbols)};
}

runtime::Operand symbols_operand(const std::vector<std::uint32_t>& symbols) {
  runtime::ListOperand list{c10::IntType::get(), {}};
  for (const std::uint32_t symbol : symbols) list.elements.push_back({size_operand(ir::Dim::symbol(symbol, 2))});
  return {std::move(list)};
}

std::vector<std::int64_t> take_symbols(std::vector<c10::IValue>& stack, const std::vector<std::uint32_t>& symbols) {
  if (symbols.empty()) return {};
  std::vector<std::int64_t> values(symbols.back() + 1, 0);
  const std::vector<std::int64_t> given = stack.back().toIntVector();
  for (std::size_t i = 0; i < given.size(); ++i) values[symbols[i]] = given[i];
  stack.pop_back();
  return values;
}

void lower_block(const ir::BoundSymbol& block, runtime::Kernel kernel, std::shared_ptr<const void> state,
                 const std::vector<std::uint32_t>& symbols, std::span<const std::size_t> written,
                 runtime::ProgramBuilder& builder) {
  const std::vector<ir::ValueId> inputs = ir::distinct_values(block.arguments);
  std::vector<runtime::Operand> operands;
  for (const ir::ValueId id : inputs) operands.emplace_back(slot_of(id));
  if (!symbols.empty()) operands.push_back(symbols_operand(symbols));
  std::vector<runtime::ResultSlots> results;
  for (const ir::ValueId id : ir::flat_results(block)) results.emplace_back(slot_of(id));
  std::vector<runtime::Slot> written_slots;
  for (const std::size_t place : written) written_slots.push_back(slot_of(inputs[place]));
  builder.call("a fusion of " + block.comment, kernel, std::move(state), std::move(operands), std::move(results),
               location_of(block), written_slots);
}

c10::IValue operand_constant(const ir::Argument& argument, const c10::TypePtr& type, const ir::Trace& trace) {
  const bridge::ArgumentWriter writer{
      [](ir::ValueId) -> c10::IValue { throw InternalError("executors", "a value where a constant is expected"); },
      [&](ir::ObjectConstant object) { return bridge::value_of(*trace.context(), object); }};
  return bridge::to_ivalue(argument, *type, writer);
}

runtime::Operand operand_of(const ir::Argument& argument, const c10::TypePtr& type, const ir::Trace& trace) {
  if (const auto* id = argument.get<ir::ValueId>()) return {slot_of(*id)};
  if (const auto* dim = argument.get<ir::Dim>()) {
    runtime::SizeOperand size = size_operand(*dim);
    const c10::TypePtr& inner = type->kind() == c10::TypeKind::OptionalType ? type->containedType(0) : type;
    size.is_tensor = inner->kind() == c10::TypeKind::TensorType;
    return {std::move(size)};
  }
  if (varies(argument)) {
    const c10::TypePtr& list_type = type->kind() == c10::TypeKind::OptionalType ? type->containedType(0) : type;
    const c10::TypePtr& element_type = list_type->containedType(0);
    // Boxed lists of symbolic integers are lists of integers.
    runtime::ListOperand list{element_type->kind() == c10::TypeKind::SymIntType ? c10::IntType::get() : element_type,
                              {}};
    for (const ir::Argument& element : std::get<ir::ArgumentList>(argument.content)) {
      list.elements.push_back(operand_of(element, element_type, trace));
    }
    return {std::move(list)};
  }
  return {operand_constant(argument, type, trace)};
}

std::vector<runtime::ResultSlots> result_slots(const ir::BoundSymbol& symbol) {
  std::vector<runtime::ResultSlots> slots;
  const auto slot_or_none = [](const ir::Argument& result) {
    const auto* id = result.get<ir::ValueId>();
    return id == nullptr ? runtime::kNoSlot : slot_of(*id);
  };
  for (const ir::Argument& result : symbol.results) {
    const auto* list = result.get<ir::ArgumentList>();
    if (list == nullptr) {
      slots.emplace_back(slot_or_none(result));
      continue;
    }
    std::vector<runtime::Slot> elements;
    for (const ir::Argument& element : *list) elements.push_back(slot_or_none(element));
    slots.emplace_back(std::move(elements));
  }
  return slots;
}

runtime::Location location_of(const ir::BoundSymbol& symbol) {
  if (symbol.location.file == nullptr) return {};
  return {*symbol.location.file, symbol.location.line};
}

std::vector<runtime::Operand> operands_of(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
  const std::vector<c10::Argument>& parameters = op.schema().arguments();
  std::vector<runtime::Operand> operands;
  operands.reserve(parameters.size());
  for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
    operands.push_back(operand_of(symbol.arguments[i], parameters.at(i).real_type(), trace));
  }
  return operands;
}

namespace {

/// Whether an operator whose schema says that it gives views launches nothing. Composites such as `reshape` may copy,
/// as may `thunder::restride`, and nobody knows what operators of others do.
bool only_makes_a_view(const c10::OperatorHandle& op) {
  const bool is_composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  return op.operator_name().getNamespace() == "aten" && !op.schema().is_mutable() && !is_composite;
}

struct CallInOrder {
  c10::OperatorHandle op;
  std::optional<std::size_t> input = bridge::place_of_input(op.schema());
};

void call_in_order(const void* state, std::vector<c10::IValue>& stack) {
  const auto& call = *static_cast<const CallInOrder*>(state);
  bridge::lay_out_in_order(call.input, std::span(stack).last(call.op.schema().arguments().size()));
  call.op.callBoxed(stack);
}

}  // namespace

void lower_operator(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder,
                    bool is_small) {
  const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
  if (operators::has_fact(*symbol.op, operators::Fact::kReadsInOrder)) {
    builder.call(op, &call_in_order, std::make_shared<const CallInOrder>(CallInOrder{op}), operands_of(symbol, trace),
                 result_slots(symbol), location_of(symbol));
    return;
  }
  builder.call(op, operands_of(symbol, trace), result_slots(symbol), location_of(symbol), is_small);
  if (symbol.op->view && only_makes_a_view(op)) builder.launches_nothing();
}

}  // namespace thunder::executors
