#include "executors/api/primitives.h"

#include <ATen/core/jit_type.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "bridge/constant.h"
#include "bridge/number.h"
#include "executors/api/operands.h"
#include "runtime/value_changed.h"

namespace thunder::executors {
namespace {

using c10::IValue;
using Stack = std::vector<IValue>;
using Lower = void (*)(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder);

/// Bound when the program is built: costs nothing when it runs.
void lower_constant(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  builder.add_constant(slot_of(std::get<ir::ValueId>(symbol.results.at(0).content)),
                       bridge::tensor_of(*trace.context(), symbol.arguments.at(0)));
}

void lower_custom_gradient(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  builder.call(
      symbol.op->name, [](const void*, Stack&) {}, nullptr,
      {operand_of(symbol.arguments[0], c10::ListType::ofTensors(), trace)}, result_slots(symbol));
}

void item(const void* /*state*/, Stack& stack) {
  stack.back() = bridge::wrap_number(bridge::unwrap_number(stack.back().toTensor()));
}

void lower_item(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  builder.call(symbol.op->name, &item, nullptr, {operand_of(symbol.arguments[0], c10::AnyType::get(), trace)},
               result_slots(symbol), location_of(symbol));
}

/// Computes a number as Python does. Where Python would raise, or the result is a number that no tensor holds, the
/// program is traced anew.
void number(const void* state, Stack& stack) {
  const c10::Scalar right = bridge::unwrap_number(stack.back().toTensor());
  stack.pop_back();
  const auto& operation = *static_cast<const std::string*>(state);
  const auto result = bridge::compute_number(operation, bridge::unwrap_number(stack.back().toTensor()), right);
  if (!result) throw runtime::ValueChanged();
  stack.back() = bridge::wrap_number(*result);
}

void lower_number(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  const auto& operation = std::get<std::string>(symbol.arguments[0].content);
  builder.call(symbol.op->name, &number, std::make_shared<const std::string>(operation),
               {operand_of(symbol.arguments[1], c10::TensorType::get(), trace),
                operand_of(symbol.arguments[2], c10::TensorType::get(), trace)},
               result_slots(symbol), location_of(symbol));
}

void check_number(const void* state, Stack& stack) {
  const bool same =
      bridge::same_number(bridge::unwrap_number(stack.back().toTensor()), *static_cast<const c10::Scalar*>(state));
  stack.pop_back();
  if (!same) throw runtime::ValueChanged();
}

void lower_check_number(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  const IValue expected = operand_constant(symbol.arguments[1], c10::NumberType::get(), trace);
  builder.call(symbol.op->name, &check_number, std::make_shared<const c10::Scalar>(expected.toScalar()),
               {operand_of(symbol.arguments[0], c10::AnyType::get(), trace)}, {}, location_of(symbol));
}

void check_shape(const void* state, Stack& stack) {
  const bool same = stack.back().toTensor().sizes().equals(*static_cast<const std::vector<std::int64_t>*>(state));
  stack.pop_back();
  if (!same) throw runtime::ValueChanged();
}

void lower_check_shape(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  const IValue expected = operand_constant(symbol.arguments[1], c10::ListType::ofInts(), trace);
  builder.call(symbol.op->name, &check_shape, std::make_shared<const std::vector<std::int64_t>>(expected.toIntVector()),
               {operand_of(symbol.arguments[0], c10::AnyType::get(), trace)}, {}, location_of(symbol));
}

void check_contents(const void* state, Stack& stack) {
  const bool same = bridge::same_contents(stack.back().toTensor(), *static_cast<const at::Tensor*>(state));
  stack.pop_back();
  if (!same) throw runtime::ValueChanged();
}

void lower_check_contents(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  const auto object = std::get<ir::ObjectConstant>(symbol.arguments.at(1).content);
  builder.call(symbol.op->name, &check_contents, trace.context()->owner_of(object, ir::ObjectKind::kTensor),
               {operand_of(symbol.arguments[0], c10::AnyType::get(), trace)}, {}, location_of(symbol));
}

/// The call does nothing, but uses its operands, so that registers hold them until then.
void lower_keep(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  builder.call(symbol.op->name, [](const void*, Stack& stack) { stack.pop_back(); }, nullptr,
               {operand_of(symbol.arguments[0], c10::ListType::ofTensors(), trace)}, {});
}

struct Row {
  std::string_view name;
  Lower lower;
};

constexpr Row kRows[] = {
    {"prims::tensor_constant", &lower_constant},
    {"prims::custom_gradient", &lower_custom_gradient},
    {"prims::item", &lower_item},
    {"prims::number", &lower_number},
    {"prims::check_number", &lower_check_number},
    {"prims::check_shape", &lower_check_shape},
    {"prims::check_contents", &lower_check_contents},
    {"prims::keep", &lower_keep},
};

const Row* find(const ir::Operator& op) {
  if (op.style != ir::CallStyle::kPrimitive) return nullptr;
  for (const Row& row : kRows) {
    if (row.name == op.name) return &row;
  }
  return nullptr;
}

}  // namespace

bool is_primitive(const ir::Operator& op) { return find(op) != nullptr; }

bool lower_primitive(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  const Row* row = find(*symbol.op);
  if (row != nullptr) row->lower(symbol, trace, builder);
  return row != nullptr;
}

}  // namespace thunder::executors
