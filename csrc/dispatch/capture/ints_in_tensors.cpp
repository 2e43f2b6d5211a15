#include "dispatch/capture/ints_in_tensors.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <string_view>

#include "dispatch/numbers/number_object.h"

namespace thunder::dispatch {
namespace {

/// Operations on tensors of one integer that do as Python with the integers.
struct IntOperation {
  std::string_view op;
  std::string_view symbol;
  bool is_reversed = false;
};
constexpr std::array kIntOperations{IntOperation{"aten::add", "+"},           IntOperation{"aten::sub", "-"},
                                    IntOperation{"aten::rsub", "-", true},    IntOperation{"aten::mul", "*"},
                                    IntOperation{"aten::floor_divide", "//"}, IntOperation{"aten::neg", "neg"}};

/// The operation that gave a value, among the last ones of the trace; null: it was none of them.
const ir::BoundSymbol* producer_of(const ir::Trace& trace, ir::ValueId value) {
  constexpr std::size_t kMost = 64;
  const auto last = trace.symbols | std::views::reverse | std::views::take(kMost);
  const auto found = std::ranges::find_if(last, [&](const ir::BoundSymbol& symbol) {
    const auto* result = symbol.results.size() == 1 ? std::get_if<ir::ValueId>(&symbol.results[0].content) : nullptr;
    return result != nullptr && *result == value;
  });
  return found == last.end() ? nullptr : &*found;
}

/// `torch.add(a, b, alpha=2)` multiplies, too.
bool is_scaled(const ir::BoundSymbol& symbol) {
  constexpr std::size_t kAlpha = 2;
  if (symbol.arguments.size() <= kAlpha) return false;
  const auto* alpha = std::get_if<std::int64_t>(&symbol.arguments[kAlpha].content);
  return alpha == nullptr || *alpha != 1;
}

}  // namespace

PyObject* IntsInTensors::find(ir::ValueId value) const {
  const auto found = numbers_.find(value);
  return found == numbers_.end() ? nullptr : found->second.get();
}

py::Ref IntsInTensors::operand(const ir::Argument& argument) const {
  if (const auto* value = std::get_if<ir::ValueId>(&argument.content)) return py::Ref::share(find(*value));
  const auto* constant = std::get_if<std::int64_t>(&argument.content);
  return py::Ref::steal(constant == nullptr ? nullptr : PyLong_FromLongLong(*constant));
}

void IntsInTensors::add(const ir::Trace& trace, ir::ValueId value, PyObject* number) {
  numbers_.insert_or_assign(value, py::Ref::share(number));
  const ir::TensorType* type = trace.tensor_type(value);
  const ir::BoundSymbol* symbol = producer_of(trace, value);
  // Narrower integers overflow.
  if (symbol == nullptr || type == nullptr || type->dtype != ir::Dtype::kInt64 || is_scaled(*symbol)) return;
  const auto* row = std::ranges::find(kIntOperations, std::string_view(symbol->op->name), &IntOperation::op);
  if (row == kIntOperations.end() || symbol->arguments.empty()) return;
  const py::Ref first = operand(symbol->arguments.front());
  const py::Ref second = symbol->arguments.size() > 1 ? operand(symbol->arguments[1]) : first;
  if (!first || !second) return;
  note_expression(row->symbol, row->is_reversed ? second.get() : first.get(),
                  row->is_reversed ? first.get() : second.get(), number);
}

}  // namespace thunder::dispatch
