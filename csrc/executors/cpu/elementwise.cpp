// Operations of elements: how much work they are, and what they are made of.
#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>

#include "executors/cpu/operations.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

bool holds(ir::Dtype dtype, std::int64_t number) {
  const int bits = dtype == ir::Dtype::kBool ? 1 : static_cast<int>(8 * ir::size_of(dtype));
  if (bits == 64) return true;
  const bool is_signed = dtype != ir::Dtype::kBool && dtype != ir::Dtype::kUint8;
  const std::int64_t end = std::int64_t{1} << static_cast<unsigned>(is_signed ? bits - 1 : bits);
  return number < end && number >= (is_signed ? -end : 0);
}

/// Arguments that a result's dtype cannot hold, as integers that meet a float number would be, are none of ours.
bool numbers_fit(const BoundSymbol& symbol, const Trace& trace) {
  const ir::TensorType* type = result_type(symbol, trace);
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

constexpr double kArithmetic = 1;
constexpr double kTranscendental = 4;

template <TileOp op>
constexpr double work_of() {
  constexpr TileOp kCostly[] = {TileOp::kExp,     TileOp::kExpm1,     TileOp::kLog,        TileOp::kLog1p,
                                TileOp::kSin,     TileOp::kCos,       TileOp::kTanh,       TileOp::kErf,
                                TileOp::kSigmoid, TileOp::kNormalCdf, TileOp::kTailOfGelu, TileOp::kPower,
                                TileOp::kRsqrt};
  for (const TileOp costly : kCostly) {
    if (costly == op) return kTranscendental;
  }
  return kArithmetic;
}

FusionRole arithmetic_role(const BoundSymbol& symbol, const Trace& trace) {
  const FusionRole role = element_role(symbol, trace, kArithmetic);
  return role.kind != FusionRole::Kind::kNone && numbers_fit(symbol, trace) ? role : FusionRole{};
}

/// Bounds that are NaN are left to PyTorch, whose releases differ in what they make of them.
FusionRole clamp_role(const BoundSymbol& symbol, const Trace& trace) {
  const bool has_nan = std::ranges::any_of(symbol.arguments, [](const ir::Argument& argument) {
    const auto* number = argument.get<double>();
    return number != nullptr && std::isnan(*number);
  });
  return has_nan ? FusionRole{} : arithmetic_role(symbol, trace);
}

/// A function of real numbers: its result is of a floating-point dtype, and a kernel has it for the lane.
template <TileOp op>
FusionRole real_role(const BoundSymbol& symbol, const Trace& trace) {
  const FusionRole role = element_role(symbol, trace, work_of<op>());
  if (role.kind == FusionRole::Kind::kNone || !is_float(result_type(symbol, trace))) return {};
  const Lane lane = lane_of(*storage_of(result_type(symbol, trace)->dtype));
  return kernels().element(op, lane, 0) == nullptr ? FusionRole{} : role;
}

template <TileOp op>
void lower_unary(Lowering& lowering, const BoundSymbol& symbol) {
  lowering.set(symbol, 0, lowering.apply(op, {lowering.argument(symbol, 0, lowering.result_lane(symbol))}));
}
template <TileOp op>
void lower_binary(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  lowering.set(symbol, 0, lowering.apply(op, {lowering.argument(symbol, 0, lane), lowering.argument(symbol, 1, lane)}));
}
template <TileOp op>
constexpr Operation unary() {
  return {&real_role<op>, &lower_unary<op>};
}
/// Of integers too.
template <TileOp op>
constexpr Operation number_unary() {
  return {&arithmetic_role, &lower_unary<op>};
}
template <TileOp op>
constexpr Operation binary() {
  return {&arithmetic_role, &lower_binary<op>};
}
template <TileOp op>
constexpr Operation real_binary() {
  return {&real_role<op>, &lower_binary<op>};
}

/// `value`, times argument `i` where there is one that is not 1.
Value times(Lowering& lowering, Value value, const BoundSymbol& symbol, std::size_t i) {
  const bool is_one = i < symbol.arguments.size() &&
                      (symbol.arguments[i] == ir::Argument(1) || symbol.arguments[i] == ir::Argument(1.0));
  return is_one ? value : lowering.apply_if_given(TileOp::kMultiply, value, symbol, i);
}

/// An operand of a sum. Beside a rounded value of rows that comes from memory it is rounded as well: what is taken from
/// the largest of its row, which the forward saved, is zero where it is the largest.
Value addend(Lowering& lowering, const BoundSymbol& symbol, std::size_t i, Lane lane) {
  return lowering.is_loaded_row(symbol, 1 - i) ? lowering.rounded_argument(symbol, i, lane)
                                               : lowering.argument(symbol, i, lane);
}

/// `x + alpha * y`, `x - alpha * y`.
template <TileOp op>
void lower_scaled(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  const Value left = addend(lowering, symbol, 0, lane);
  const Value right = times(lowering, addend(lowering, symbol, 1, lane), symbol, 2);
  lowering.set(symbol, 0, lowering.apply(op, {left, right}));
}
void lower_reversed_subtraction(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  const Value right = times(lowering, lowering.argument(symbol, 0, lane), symbol, 2);
  lowering.set(symbol, 0, lowering.apply(TileOp::kSubtract, {lowering.argument(symbol, 1, lane), right}));
}

/// Bools are compared as bools, everything else where the arguments meet.
FusionRole comparison_role(const BoundSymbol& symbol, const Trace& trace) {
  return element_role(symbol, trace, kArithmetic);
}
template <TileOp op>
void lower_comparison(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.common_lane(symbol, 2);
  const Value left = lowering.rounded_argument(symbol, 0, lane);
  lowering.set(symbol, 0, lowering.apply(op, {left, lowering.rounded_argument(symbol, 1, lane)}));
}
template <TileOp op>
constexpr Operation comparison() {
  return {&comparison_role, &lower_comparison<op>};
}

FusionRole bool_role(const BoundSymbol& symbol, const Trace& trace) {
  bool all_bools = true;
  const auto check = [&](ir::ValueId id) {
    all_bools = all_bools && passes::operand_type(trace, id)->dtype == ir::Dtype::kBool;
  };
  passes::for_each_argument(symbol, check);
  passes::for_each_result(symbol, check);
  for (const ir::Argument& argument : symbol.arguments) {
    all_bools = all_bools && (argument.is<ir::ValueId>() || argument.is<bool>());
  }
  return all_bools ? element_role(symbol, trace, kArithmetic) : FusionRole{};
}

// pow(x, number): the exponents for which a few products do.
FusionRole power_role(const BoundSymbol& symbol, const Trace& trace) {
  const bool is_real = is_float(result_type(symbol, trace)) && is_float(argument_type(symbol, trace, 0));
  return is_real ? element_role(symbol, trace, kArithmetic) : FusionRole{};
}
void lower_power(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  const Value base = lowering.argument(symbol, 0, lane);
  const auto* integer = symbol.arguments[1].get<std::int64_t>();
  const auto* real = symbol.arguments[1].get<double>();
  const double exponent = integer != nullptr ? static_cast<double>(*integer) : real != nullptr ? *real : 0;
  const auto square = [&] { return lowering.apply(TileOp::kSquare, {base}); };
  Value result = base;
  if (exponent == 2) {
    result = square();
  } else if (exponent == 3) {
    result = lowering.apply(TileOp::kMultiply, {square(), base});
  } else if (exponent == 0.5) {
    result = lowering.apply(TileOp::kSqrt, {base});
  } else if (exponent == -0.5) {
    result = lowering.apply(TileOp::kRsqrt, {base});
  } else if (exponent == -1) {
    result = lowering.apply(TileOp::kReciprocal, {base});
  } else if (exponent == -2) {
    result = lowering.apply(TileOp::kReciprocal, {square()});
  } else if (exponent != 1) {
    result = lowering.apply(TileOp::kPower, {base, lowering.argument(symbol, 1, lane)});
  }
  lowering.set(symbol, 0, result);
}

bool is_tanh(const ir::Argument& approximate) {
  const auto* text = approximate.get<std::string>();
  return text != nullptr && *text == "tanh";
}
void lower_gelu(Lowering& lowering, const BoundSymbol& symbol) {
  const Value x = lowering.argument(symbol, 0, lowering.result_lane(symbol));
  if (is_tanh(symbol.arguments[1])) {
    lowering.set(symbol, 0, lowering.apply(TileOp::kGeluOfTail, {x, lowering.apply(TileOp::kTailOfGelu, {x})}));
  } else {
    lowering.set(symbol, 0, lowering.apply(TileOp::kMultiply, {x, lowering.apply(TileOp::kNormalCdf, {x})}));
  }
}
void lower_gelu_backward(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  const Value x = lowering.argument(symbol, 1, lane);
  const bool with_tanh = is_tanh(symbol.arguments[2]);
  const Value known = lowering.apply(with_tanh ? TileOp::kTailOfGelu : TileOp::kNormalCdf, {x});
  const Value slope = lowering.apply(with_tanh ? TileOp::kGeluTanhSlope : TileOp::kGeluSlope, {x, known});
  lowering.set(symbol, 0, lowering.apply(TileOp::kMultiply, {lowering.argument(symbol, 0, lane), slope}));
}

void lower_silu(Lowering& lowering, const BoundSymbol& symbol) {
  const Value x = lowering.argument(symbol, 0, lowering.result_lane(symbol));
  lowering.set(symbol, 0, lowering.apply(TileOp::kMultiply, {x, lowering.apply(TileOp::kSigmoid, {x})}));
}
void lower_silu_backward(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  const Value x = lowering.argument(symbol, 1, lane);
  const Value slope = lowering.apply(TileOp::kSiluSlope, {x, lowering.apply(TileOp::kSigmoid, {x})});
  lowering.set(symbol, 0, lowering.apply(TileOp::kMultiply, {lowering.argument(symbol, 0, lane), slope}));
}

void lower_threshold_backward(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  const Value passes_on =
      lowering.apply(TileOp::kLessEqual, {lowering.argument(symbol, 1, lane), lowering.argument(symbol, 2, lane)});
  lowering.set(
      symbol, 0,
      lowering.apply(TileOp::kWhere, {passes_on, lowering.number(lane, 0), lowering.argument(symbol, 0, lane)}));
}

void lower_leaky_relu(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  const Value x = lowering.argument(symbol, 0, lane);
  const Value scaled = lowering.apply(TileOp::kMultiply, {x, lowering.argument(symbol, 1, lane)});
  const Value positive = lowering.apply(TileOp::kGreater, {x, lowering.number(lane, 0)});
  lowering.set(symbol, 0, lowering.apply(TileOp::kWhere, {positive, x, scaled}));
}

/// `condition ? yes : no`; the numbers are the arguments' places.
template <std::size_t condition>
FusionRole choice_role(const BoundSymbol& symbol, const Trace& trace) {
  const ir::TensorType* type = argument_type(symbol, trace, condition);
  const bool is_bool = type != nullptr && type->dtype == ir::Dtype::kBool;
  return is_bool ? element_role(symbol, trace, kArithmetic) : FusionRole{};
}
template <std::size_t condition, std::size_t yes, std::size_t no>
void lower_choice(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  const Value chosen = lowering.argument(symbol, condition, Lane::kBool);
  lowering.set(symbol, 0,
               lowering.apply(TileOp::kWhere,
                              {chosen, lowering.argument(symbol, yes, lane), lowering.argument(symbol, no, lane)}));
}
constexpr Operation kWhere{&choice_role<0>, &lower_choice<0, 1, 2>};
constexpr Operation kMaskedFill{&choice_role<1>, &lower_choice<1, 2, 0>};

template <bool has_minimum, bool has_maximum>
void lower_clamp(Lowering& lowering, const BoundSymbol& symbol) {
  Value x = lowering.argument(symbol, 0, lowering.result_lane(symbol));
  if (has_minimum) x = lowering.apply_if_given(TileOp::kMaximum, x, symbol, 1);
  if (has_maximum) x = lowering.apply_if_given(TileOp::kMinimum, x, symbol, has_minimum ? 2 : 1);
  lowering.set(symbol, 0, x);
}

/// `self + value * (a op b)`.
template <TileOp op>
void lower_add_of(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  Value product = times(lowering, lowering.argument(symbol, 1, lane), symbol, 3);
  product = lowering.apply(op, {product, lowering.argument(symbol, 2, lane)});
  lowering.set(symbol, 0, lowering.apply(TileOp::kAdd, {lowering.argument(symbol, 0, lane), product}));
}
FusionRole addition_role(const BoundSymbol& symbol, const Trace& trace) {
  return is_float(result_type(symbol, trace)) ? element_role(symbol, trace, 2 * kArithmetic) : FusionRole{};
}

/// `start + weight * (end - start)`, from the nearer of the two.
void lower_lerp(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  const Value start = lowering.argument(symbol, 0, lane);
  const Value end = lowering.argument(symbol, 1, lane);
  const Value weight = lowering.argument(symbol, 2, lane);
  const Value distance = lowering.apply(TileOp::kSubtract, {end, start});
  const auto moved = [&](TileOp op, Value from, Value by) {
    return lowering.apply(op, {from, lowering.apply(TileOp::kMultiply, {by, distance})});
  };
  const auto near = [&] { return moved(TileOp::kAdd, start, weight); };
  const auto far = [&] {
    return moved(TileOp::kSubtract, end, lowering.apply(TileOp::kSubtract, {lowering.number(lane, 1), weight}));
  };
  if (const auto* number = symbol.arguments[2].get<double>()) {
    lowering.set(symbol, 0, std::abs(*number) < 0.5 ? near() : far());
    return;
  }
  const Value is_near =
      lowering.apply(TileOp::kLess, {lowering.apply(TileOp::kAbs, {weight}), lowering.number(lane, 0.5)});
  lowering.set(symbol, 0, lowering.apply(TileOp::kWhere, {is_near, near(), far()}));
}

// Casts: not to integers, whose values for what they cannot hold are the hardware's own.
FusionRole cast_role(const BoundSymbol& symbol, const Trace& trace) {
  const ir::TensorType* from = argument_type(symbol, trace, 0);
  const ir::TensorType* to = result_type(symbol, trace);
  if (from == nullptr || to == nullptr) return {};
  const bool keeps_order = passes::memory_order(*from) == passes::memory_order(*to);
  return keeps_order && (is_float(to) || !is_float(from)) ? element_role(symbol, trace, kArithmetic) : FusionRole{};
}
void lower_cast(Lowering& lowering, const BoundSymbol& symbol) {
  const ir::Dtype to = lowering.result_type(symbol).dtype;
  const ir::Dtype from = lowering.type(symbol, 0)->dtype;
  const Value value = lowering.rounded_argument(symbol, 0, lowering.result_lane(symbol));
  const bool rounds = from != to && (to == ir::Dtype::kBfloat16 || to == ir::Dtype::kFloat16);
  if (rounds) {
    lowering.set_rounded(symbol, value, to);
  } else {
    lowering.set(symbol, 0, value);
  }
}

// Views and constants cost nothing.
FusionRole expand_role(const BoundSymbol& symbol, const Trace& trace) { return element_role(symbol, trace, 0); }
FusionRole copy_role(const BoundSymbol& symbol, const Trace& trace) { return element_role(symbol, trace, 1); }
void lower_copy(Lowering& lowering, const BoundSymbol& symbol) {
  lowering.set(symbol, 0, lowering.argument(symbol, 0, lowering.result_lane(symbol)));
}
template <int value>
void lower_constant(Lowering& lowering, const BoundSymbol& symbol) {
  lowering.set(symbol, 0, lowering.number(lowering.result_lane(symbol), value));
}
void lower_fill(Lowering& lowering, const BoundSymbol& symbol) {
  lowering.set(symbol, 0, lowering.argument(symbol, 1, lowering.result_lane(symbol)));
}

constexpr Operation kView{&view_role, &lower_copy};

}  // namespace

void add_elementwise(std::unordered_map<std::string_view, Operation>& table) {
  table.insert({
      {"aten::neg", number_unary<TileOp::kNegate>()},
      {"aten::abs", number_unary<TileOp::kAbs>()},
      {"aten::sign", number_unary<TileOp::kSign>()},
      {"aten::square", number_unary<TileOp::kSquare>()},
      {"aten::relu", number_unary<TileOp::kRelu>()},
      {"aten::reciprocal", unary<TileOp::kReciprocal>()},
      {"aten::sqrt", unary<TileOp::kSqrt>()},
      {"aten::rsqrt", unary<TileOp::kRsqrt>()},
      {"aten::exp", unary<TileOp::kExp>()},
      {"aten::expm1", unary<TileOp::kExpm1>()},
      {"aten::log", unary<TileOp::kLog>()},
      {"aten::log1p", unary<TileOp::kLog1p>()},
      {"aten::sin", unary<TileOp::kSin>()},
      {"aten::cos", unary<TileOp::kCos>()},
      {"aten::tanh", unary<TileOp::kTanh>()},
      {"aten::erf", unary<TileOp::kErf>()},
      {"aten::sigmoid", unary<TileOp::kSigmoid>()},
      {"aten::silu", {&real_role<TileOp::kSigmoid>, &lower_silu}},
      {"aten::floor", unary<TileOp::kFloor>()},
      {"aten::ceil", unary<TileOp::kCeil>()},
      {"aten::trunc", unary<TileOp::kTrunc>()},
      {"aten::round", unary<TileOp::kRound>()},
      {"aten::gelu", {&real_role<TileOp::kNormalCdf>, &lower_gelu}},
      {"aten::gelu_backward", {&real_role<TileOp::kNormalCdf>, &lower_gelu_backward}},
      {"aten::silu_backward", {&real_role<TileOp::kSigmoid>, &lower_silu_backward}},
      {"aten::sigmoid_backward", real_binary<TileOp::kSigmoidBackward>()},
      {"aten::tanh_backward", real_binary<TileOp::kTanhBackward>()},
      {"aten::threshold_backward", {&arithmetic_role, &lower_threshold_backward}},
      {"aten::leaky_relu", {&real_role<TileOp::kMultiply>, &lower_leaky_relu}},
      {"aten::add.Tensor", {&arithmetic_role, &lower_scaled<TileOp::kAdd>}},
      {"aten::add.Scalar", {&arithmetic_role, &lower_scaled<TileOp::kAdd>}},
      {"aten::sub.Tensor", {&arithmetic_role, &lower_scaled<TileOp::kSubtract>}},
      {"aten::sub.Scalar", {&arithmetic_role, &lower_scaled<TileOp::kSubtract>}},
      {"aten::rsub.Tensor", {&arithmetic_role, &lower_reversed_subtraction}},
      {"aten::rsub.Scalar", {&arithmetic_role, &lower_reversed_subtraction}},
      {"aten::mul.Tensor", binary<TileOp::kMultiply>()},
      {"aten::mul.Scalar", binary<TileOp::kMultiply>()},
      {"aten::div.Tensor", real_binary<TileOp::kDivide>()},
      {"aten::div.Scalar", real_binary<TileOp::kDivide>()},
      {"aten::maximum", binary<TileOp::kMaximum>()},
      {"aten::minimum", binary<TileOp::kMinimum>()},
      {"aten::clamp", {&clamp_role, &lower_clamp<true, true>}},
      {"aten::clamp_min", {&clamp_role, &lower_clamp<true, false>}},
      {"aten::clamp_max", {&clamp_role, &lower_clamp<false, true>}},
      {"aten::pow.Tensor_Scalar", {&power_role, &lower_power}},
      {"aten::addcmul", {&addition_role, &lower_add_of<TileOp::kMultiply>}},
      {"aten::lerp.Scalar", {&addition_role, &lower_lerp}},
      {"aten::lerp.Tensor", {&addition_role, &lower_lerp}},
      {"aten::addcdiv", {&addition_role, &lower_add_of<TileOp::kDivide>}},
      {"aten::eq.Tensor", comparison<TileOp::kEqual>()},
      {"aten::eq.Scalar", comparison<TileOp::kEqual>()},
      {"aten::ne.Tensor", comparison<TileOp::kNotEqual>()},
      {"aten::ne.Scalar", comparison<TileOp::kNotEqual>()},
      {"aten::lt.Tensor", comparison<TileOp::kLess>()},
      {"aten::lt.Scalar", comparison<TileOp::kLess>()},
      {"aten::le.Tensor", comparison<TileOp::kLessEqual>()},
      {"aten::le.Scalar", comparison<TileOp::kLessEqual>()},
      {"aten::gt.Tensor", comparison<TileOp::kGreater>()},
      {"aten::gt.Scalar", comparison<TileOp::kGreater>()},
      {"aten::ge.Tensor", comparison<TileOp::kGreaterEqual>()},
      {"aten::ge.Scalar", comparison<TileOp::kGreaterEqual>()},
      {"aten::logical_not", {&bool_role, &lower_unary<TileOp::kNot>}},
      {"aten::bitwise_not", {&bool_role, &lower_unary<TileOp::kNot>}},
      {"aten::logical_and", {&bool_role, &lower_binary<TileOp::kAnd>}},
      {"aten::logical_or", {&bool_role, &lower_binary<TileOp::kOr>}},
      {"aten::bitwise_and.Tensor", {&bool_role, &lower_binary<TileOp::kAnd>}},
      {"aten::bitwise_or.Tensor", {&bool_role, &lower_binary<TileOp::kOr>}},
      {"aten::__and__.Tensor", {&bool_role, &lower_binary<TileOp::kAnd>}},
      {"aten::__or__.Tensor", {&bool_role, &lower_binary<TileOp::kOr>}},
      {"aten::where.self", kWhere},
      {"aten::where.ScalarOther", kWhere},
      {"aten::where.ScalarSelf", kWhere},
      {"aten::masked_fill.Scalar", kMaskedFill},
      {"aten::masked_fill.Tensor", kMaskedFill},
      {"aten::_to_copy", {&cast_role, &lower_cast}},
      {"aten::expand", {&expand_role, &lower_copy}},
      {"aten::expand_copy", {&copy_role, &lower_copy}},
      {"aten::empty_like", {&expand_role, &lower_constant<0>}},
      {"aten::zeros_like", {&expand_role, &lower_constant<0>}},
      {"aten::ones_like", {&expand_role, &lower_constant<1>}},
      {"aten::fill.Scalar", {&expand_role, &lower_fill}},
      {"aten::full_like", {&expand_role, &lower_fill}},
      {"aten::view", kView},
      {"aten::reshape", kView},
      {"aten::_unsafe_view", kView},
      {"aten::unsqueeze", kView},
      {"aten::squeeze", kView},
      {"aten::squeeze.dim", kView},
      {"aten::squeeze.dims", kView},
      {"aten::alias", kView},
      {"aten::detach", kView},
  });
}

}  // namespace thunder::executors::cpu
