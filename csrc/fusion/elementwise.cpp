// Elementwise operators: what `operators/elements.h` says of them, as roles and steps of a kernel.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "fusion/element_arithmetic.h"
#include "fusion/lowering.h"
#include "fusion/operations.h"
#include "operators/elements.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

using operators::ElementDomain;
using operators::Elements;

bool holds(ir::Dtype dtype, std::int64_t number) {
  const int bits = dtype == ir::Dtype::kBool ? 1 : static_cast<int>(8 * ir::size_of(dtype));
  if (bits == 64) return true;
  const bool is_signed = dtype != ir::Dtype::kBool && dtype != ir::Dtype::kUint8;
  const std::int64_t end = std::int64_t{1} << static_cast<unsigned>(is_signed ? bits - 1 : bits);
  return number < end && number >= (is_signed ? -end : 0);
}

bool is_nan(const ir::Argument& argument) {
  const auto* number = argument.get<double>();
  return number != nullptr && std::isnan(*number);
}

/// Whether the result's dtype can hold every argument: it cannot where integers are computed with a float number. A NaN
/// (a bound of `clamp`) is left to PyTorch, whose releases differ in what they make of it.
bool numbers_fit(const BoundSymbol& symbol, const Trace& trace) {
  const ir::TensorType* type = result_type(symbol, trace);
  if (std::ranges::any_of(symbol.arguments, is_nan)) return false;
  if (is_float(type)) return true;
  for (const ir::Argument& argument : symbol.arguments) {
    if (argument.is<double>() || argument.is<std::complex<double>>()) return false;
    const auto* number = argument.get<std::int64_t>();
    if (number != nullptr && !holds(type->dtype, *number)) return false;
    const auto* id = argument.get<ir::ValueId>();
    if (id != nullptr && is_float(passes::operand_type(trace, *id))) return false;
  }
  return true;
}

bool all_are_bools(const BoundSymbol& symbol, const Trace& trace) {
  bool result = true;
  const auto check = [&](ir::ValueId id) {
    result = result && passes::operand_type(trace, id)->dtype == ir::Dtype::kBool;
  };
  passes::for_each_argument(symbol, check);
  passes::for_each_result(symbol, check);
  for (const ir::Argument& argument : symbol.arguments) {
    result = result && (argument.is<ir::ValueId>() || argument.is<bool>());
  }
  return result;
}

/// Whether a number is one that the program names, and that the dtype holds as it is.
bool is_exact(const ir::Argument& number, ir::Dtype dtype) {
  const auto* integer = number.get<std::int64_t>();
  const auto* real = number.get<double>();
  if (integer == nullptr && real == nullptr) return number.is<bool>();
  const double value = integer != nullptr ? static_cast<double>(*integer) : *real;
  return round_to(value, dtype) == value;
}

/// Whether a tensor is compared with a number in the type that kernels compute in. Beside integers PyTorch compares
/// floats in the default dtype, which kernels do not know, and beside halves it rounds the number.
bool compares_with_number(const ir::TensorType& tensor, const ir::Argument& number, const Trace& trace) {
  const auto* id = number.get<ir::ValueId>();
  if (ir::is_half(tensor.dtype)) return is_exact(number, tensor.dtype);
  // A number that a tensor holds is a double, which does not give way to a tensor without dimensions.
  if (is_float(&tensor)) return id == nullptr || !tensor.sizes.empty();
  return id == nullptr ? !number.is<double>() : !is_float(passes::operand_type(trace, *id));
}

/// Whether two tensors are compared in the type that kernels compute in: neither is made smaller, as PyTorch does with
/// a tensor without dimensions and with integers beside halves.
bool compares_with_tensor(const ir::TensorType& left, const ir::TensorType& right) {
  if (left.dtype == right.dtype || left.dtype == ir::Dtype::kBool || right.dtype == ir::Dtype::kBool) return true;
  const bool are_alike = left.sizes.empty() == right.sizes.empty();
  if (!is_float(&left) && !is_float(&right)) return are_alike;
  const auto keeps = [&](const ir::TensorType& half, const ir::TensorType& other) {
    if (!ir::is_half(half.dtype)) return true;
    return is_float(&other) && (are_alike || (half.sizes.empty() && !ir::is_half(other.dtype)));
  };
  return keeps(left, right) && keeps(right, left);
}

bool compares_as_pytorch(const BoundSymbol& symbol, const Trace& trace) {
  const ir::TensorType* left = trace.tensor_type(symbol.arguments[0]);
  const ir::TensorType* right = trace.tensor_type(symbol.arguments[1]);
  if (left != nullptr && right != nullptr) return compares_with_tensor(*left, *right);
  if (left == nullptr) return right != nullptr && compares_with_number(*right, symbol.arguments[0], trace);
  return compares_with_number(*left, symbol.arguments[1], trace);
}

/// The tensor that a selection chooses by is a bool.
bool selects_by_bools(const Elements& elements, const BoundSymbol& symbol, const Trace& trace) {
  const auto& nodes = elements.expression.nodes;
  const ir::TensorType* type = argument_type(symbol, trace, nodes[elements.expression.root().operands[0]].parameter);
  return type != nullptr && type->dtype == ir::Dtype::kBool;
}

/// A cast to an integer is left out where the value may not fit: it is then the hardware's own. So is a copy into
/// another order of memory, and a cast that gives its argument itself.
bool can_cast(const BoundSymbol& symbol, const Trace& trace) {
  const ir::TensorType* from = argument_type(symbol, trace, 0);
  const ir::TensorType* to = result_type(symbol, trace);
  if (from == nullptr || to == nullptr) return false;
  if (symbol.op->view && from->dtype == to->dtype) return false;
  return memory_order(*from) == memory_order(*to) && (is_float(to) || !is_float(from));
}

/// Whether a target has the operations of a call.
struct TargetCheck {
  using Value = int;
  const Target& target;
  ComputeType type;
  bool has_all = true;

  Value parameter(std::size_t /*i*/) { return 0; }
  Value condition(std::size_t /*i*/) { return 0; }
  Value number(double /*value*/) { return 0; }
  Value apply(ElementOp op, std::span<const Value> /*operands*/) {
    has_all = has_all && target.has(op, type);
    return 0;
  }
};
bool has_operations(const Elements& elements, const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  TargetCheck check{target, compute_type(result_type(symbol, trace)->dtype)};
  operators::ElementBuilder(elements.expression, symbol.arguments, check).build();
  return check.has_all;
}

bool is_size(const ir::Argument& argument) { return argument.is<ir::Dim>(); }

bool is_in_domain(const Elements& elements, const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  // Kernels have sizes as floating-point numbers.
  if (std::ranges::any_of(symbol.arguments, is_size) && !is_float(result_type(symbol, trace))) return false;
  switch (elements.domain) {
    case ElementDomain::kNumbers:
      return numbers_fit(symbol, trace);
    case ElementDomain::kFloats:
      if (!is_float(argument_type(symbol, trace, 0))) return false;
      [[fallthrough]];
    case ElementDomain::kReal:
      return is_float(result_type(symbol, trace)) && has_operations(elements, symbol, trace, target);
    case ElementDomain::kBools:
      return all_are_bools(symbol, trace);
    case ElementDomain::kSelection:
      return selects_by_bools(elements, symbol, trace);
    case ElementDomain::kCast:
      return can_cast(symbol, trace);
    case ElementDomain::kComparison:
      return compares_as_pytorch(symbol, trace);
    case ElementDomain::kExpansion:
    case ElementDomain::kCopy:
    case ElementDomain::kView:
      return true;
  }
  return false;
}

FusionRole elements_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  const Elements& elements = *operators::find_elements(*symbol.op);
  if (elements.domain == ElementDomain::kView) return view_role(symbol, trace);
  const FusionRole role = element_role(symbol, trace, operators::work_of(elements, symbol.arguments), target);
  return role.kind != FusionRole::Kind::kNone && is_in_domain(elements, symbol, trace, target) ? role : FusionRole{};
}

/// Makes steps of a kernel of a call's expression.
class StepEmitter {
 public:
  using Value = fusion::Value;

  StepEmitter(Lowering& lowering, const BoundSymbol& symbol, const Elements& elements)
      : lowering_(lowering),
        symbol_(symbol),
        compares_(elements.domain == ElementDomain::kComparison),
        type_(compares_ ? lowering.common_type(symbol, 2) : lowering.result_type_of(symbol)) {
    const auto& root = elements.expression.root();
    is_sum_ = elements.domain == ElementDomain::kNumbers && root.kind == operators::ElementNode::Kind::kOperation &&
              (root.op == ElementOp::kAdd || root.op == ElementOp::kSubtract);
  }

  /// An operand of a sum beside a rounded value of rows that comes from memory is rounded as well: what is taken from
  /// the largest of its row, which the forward saved, is zero where it is the largest.
  Value parameter(std::size_t i) {
    const bool is_addend = is_sum_ && i < 2;
    const bool rounds = compares_ || (is_addend && lowering_.is_loaded_row(symbol_, 1 - i));
    return rounds ? lowering_.rounded_argument(symbol_, i, type_) : lowering_.argument(symbol_, i, type_);
  }
  Value condition(std::size_t i) { return lowering_.argument(symbol_, i, ComputeType::kBool); }
  Value number(double value) { return lowering_.number(type_, value); }
  Value apply(ElementOp op, std::span<const Value> operands) { return lowering_.apply(op, operands); }

 private:
  Lowering& lowering_;
  const BoundSymbol& symbol_;
  bool compares_;
  bool is_sum_ = false;
  ComputeType type_;
};

void lower_cast(Lowering& lowering, const BoundSymbol& symbol) {
  const ir::Dtype to = lowering.result_type(symbol).dtype;
  const ir::Dtype from = lowering.type(symbol, 0)->dtype;
  const Value value = lowering.rounded_argument(symbol, 0, lowering.result_type_of(symbol));
  const bool rounds = from != to && ir::is_half(to);
  if (rounds) {
    lowering.set_rounded(symbol, value, to);
  } else {
    lowering.set(symbol, 0, value);
  }
}

void lower_elements(Lowering& lowering, const BoundSymbol& symbol) {
  const Elements& elements = *operators::find_elements(*symbol.op);
  if (elements.domain == ElementDomain::kCast) return lower_cast(lowering, symbol);
  StepEmitter emitter(lowering, symbol, elements);
  lowering.set(symbol, 0, operators::ElementBuilder(elements.expression, symbol.arguments, emitter).build().value());
}

}  // namespace

const Operation* find_elementwise(const ir::Operator& op) {
  static constexpr Operation kElements{&elements_role, &lower_elements};
  return operators::find_elements(op) == nullptr ? nullptr : &kElements;
}

}  // namespace thunder::fusion
