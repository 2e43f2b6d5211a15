#include "passes/symbol_facts.h"

#include <algorithm>
#include <utility>

namespace thunder::passes {

namespace {

/// Whether all that a symbol reads and gives is on a GPU, where kernels raise nothing.
bool runs_on_gpu(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  bool is_all = true;
  const auto look = [&](ir::ValueId id) { is_all = is_all && is_on_gpu(trace.tensor_type(id)); };
  for_each_argument(symbol, look);
  for_each_result(symbol, look);
  return is_all;
}

/// Whether data may make an operation raise an error that the call sees.
bool raises_for_data(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  if (!operators::may_raise_for_data(trace, symbol)) return false;
  using enum operators::Fact;
  const operators::FactSet facts = operators::facts_of(*symbol.op);
  return !facts.has_any(kChoosesByIndex | kRaisesForZero) || !runs_on_gpu(trace, symbol);
}

/// Adds the bytes of a tensor, and the symbols of its sizes. They may be more than an integer holds.
void add_memory(const ir::TensorType* type, double& bytes, std::vector<std::uint32_t>& symbols) {
  if (type == nullptr) return;
  double size = static_cast<double>(ir::size_of(type->dtype));
  for (const ir::Dim& dim : type->sizes) {
    size *= static_cast<double>(dim.hint);
    ir::add_symbols(dim, symbols);
  }
  bytes += size;
}

/// Whether an operation asks for memory that may well not be there: for much more than its arguments have, or as much
/// as a number says of which they tell nothing. A fusion keeps what it computes in between to itself.
bool may_lack_memory(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  constexpr double kMuch = 1 << 30;
  if (symbol.op->view || !symbol.nested.empty()) return false;
  double given = 0, asked = 0;
  std::vector<std::uint32_t> known, used;
  for_each_argument(symbol, [&](ir::ValueId id) { add_memory(trace.tensor_type(id), given, known); });
  for_each_result(symbol, [&](ir::ValueId id) { add_memory(trace.tensor_type(id), asked, used); });
  return (asked > given && asked >= kMuch) || !std::ranges::includes(known, used);
}

/// Whether code that is not PyTorch's runs, or an operation that raises for data, in a part of the symbol, too.
bool may_fail(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  const bool is_of_others = symbol.op->style == ir::CallStyle::kTorchOperator &&
                            !symbol.op->name.starts_with("aten::") &&
                            !operators::has_fact(*symbol.op, operators::Fact::kCallsPyTorch);
  return is_of_others || raises_for_data(trace, symbol) ||
         std::ranges::any_of(symbol.nested, [&](const ir::BoundSymbol& part) { return may_fail(trace, part); });
}

}  // namespace

bool may_raise(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  return may_fail(trace, symbol) || may_lack_memory(trace, symbol);
}

const ir::TensorType* operand_type(const ir::Trace& trace, ir::ValueId id) {
  if (const ir::TensorType* type = trace.tensor_type(id)) return type;
  const auto* kind = std::get_if<ir::ScalarKind>(&*trace.value(id).type);
  const auto of = [](ir::Dtype dtype) {
    ir::TensorType type;
    type.dtype = dtype;
    return type;
  };
  static const ir::TensorType kBool = of(ir::Dtype::kBool);
  static const ir::TensorType kInt = of(ir::Dtype::kInt64);
  static const ir::TensorType kFloat = of(ir::Dtype::kFloat64);
  if (kind == nullptr || *kind == ir::ScalarKind::kComplex) return nullptr;
  return *kind == ir::ScalarKind::kBool ? &kBool : *kind == ir::ScalarKind::kInt ? &kInt : &kFloat;
}

bool is_float(const ir::TensorType* type) {
  if (type == nullptr) return false;
  const ir::Dtype dtype = type->dtype;
  return ir::is_half(dtype) || dtype == ir::Dtype::kFloat32 || dtype == ir::Dtype::kFloat64;
}

const ir::Argument& only_of(const ir::Argument& argument) {
  const auto* list = argument.get<ir::ArgumentList>();
  return list != nullptr && list->size() == 1 ? list->front() : argument;
}

const ir::TensorType* argument_type(const ir::BoundSymbol& symbol, const ir::Trace& trace, std::size_t i) {
  const auto* id = i < symbol.arguments.size() ? only_of(symbol.arguments[i]).get<ir::ValueId>() : nullptr;
  return id == nullptr ? nullptr : operand_type(trace, *id);
}

const ir::TensorType* result_type(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const ir::ValueId id = single_result(symbol);
  return trace.tensor_type(id);
}

std::size_t wrap_dim(std::int64_t dim, std::size_t rank) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(rank) : dim);
}

}  // namespace thunder::passes
