#include "dispatch/numbers/size_origin.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "bridge/number.h"
#include "dispatch/numbers/number_object.h"
#include "dispatch/numbers/size_object.h"
#include "dispatch/python/python_tensor.h"
#include "ir/size_divided_by_zero.h"
#include "tracer/followed_data.h"
#include "tracer/size_shadows.h"
#include "tracer/trace_tensor.h"

namespace thunder::dispatch {
namespace {

using tracer::SizeComparison;

std::shared_ptr<NumberTrace>& current_trace() {
  thread_local std::shared_ptr<NumberTrace> trace;
  return trace;
}

std::set<std::uint32_t>& ints_from_outside() {
  thread_local std::set<std::uint32_t> symbols;
  return symbols;
}

/// Sizes that tensors hold, by their values: what writes to such a tensor gives it another one.
std::map<ir::ValueId, py::Ref>& sizes_in_tensors() {
  thread_local std::map<ir::ValueId, py::Ref> sizes;
  return sizes;
}

/// The value of a tensor that may hold a size; `kNoValue`: it holds something else.
ir::ValueId value_for_size(PyObject* object) {
  if (!current_trace() || current_trace()->recorder == nullptr || !is_tensor(object)) return ir::kNoValue;
  const at::Tensor& tensor = unpack_tensor(object);
  if (!tracer::is_trace_tensor(tensor)) return ir::kNoValue;
  tracer::Recorder& recorder = *current_trace()->recorder;
  const tracer::TraceTensorImpl* impl = tracer::trace_impl(tensor);
  if (impl->state()->recorder != &recorder || tensor.scalar_type() != at::kLong || tensor.dim() != 0) {
    return ir::kNoValue;
  }
  const std::shared_ptr<void> outside = recorder.host.leave_program();
  return recorder.value_of(tensor);
}

bool has_ints_from_outside(const ir::Dims& dims) {
  std::vector<std::uint32_t> symbols;
  for (const ir::Dim& dim : dims) ir::add_symbols(dim, symbols);
  return std::ranges::any_of(symbols, [](std::uint32_t symbol) { return ints_from_outside().contains(symbol); });
}

const SizeOrigin* origin_of(PyObject* object) {
  return is_traced_number(object) && !as_traced(object).looked_at ? as_traced(object).origin : nullptr;
}

py::Borrowed plain_number(PyObject* object) {
  return is_traced_number(object) && as_traced(object).looked_at ? as_traced(object).real : object;
}

bool is_plain(PyObject* object) { return PyFloat_CheckExact(object) || PyLong_CheckExact(object); }

// --- fractions

bool is_power_of_two(const ir::Dim& dim) {
  const std::int64_t number = std::llabs(dim.hint);
  return dim.is_concrete() && number != 0 && (number & (number - 1)) == 0;
}

/// Whether floats hold such a quotient as it is.
bool is_exact(const SizeFraction& fraction) { return is_power_of_two(fraction.denominator); }

/// A float that is a multiple of `2**-10`.
std::optional<SizeFraction> fraction_of_float(double number) {
  constexpr double kDenominator = 1024;
  constexpr double kLargest = 1024;
  if (!(std::abs(number) <= kLargest) || std::trunc(number * kDenominator) != number * kDenominator)
    return std::nullopt;
  auto numerator = static_cast<std::int64_t>(number * kDenominator);
  auto denominator = static_cast<std::int64_t>(kDenominator);
  while (denominator > 1 && numerator % 2 == 0) {
    numerator /= 2;
    denominator /= 2;
  }
  return SizeFraction{numerator, denominator};
}

std::optional<SizeFraction> fraction_of(PyObject* object) {
  if (const auto dim = dim_of_size_number(object)) return SizeFraction{*dim};
  if (const SizeOrigin* origin = origin_of(object)) return origin->fraction;
  object = plain_number(object);
  if (PyFloat_CheckExact(object)) return fraction_of_float(PyFloat_AS_DOUBLE(object));
  if (!PyLong_CheckExact(object)) return std::nullopt;
  constexpr long long kLargest = 1LL << 20;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow != 0 || number > kLargest || number < -kLargest) return std::nullopt;
  return SizeFraction{std::int64_t{number}};
}

ir::Dim negative(const ir::Dim& dim) { return ir::Dim(-1) * dim; }

/// The smallest sizes that symbols stand for.
std::vector<std::int64_t> small_sizes(const ir::Dim& dim) {
  std::vector<std::uint32_t> symbols;
  ir::add_symbols(dim, symbols);
  return std::vector<std::int64_t>(symbols.empty() ? 0 : symbols.back() + 1, 2);
}

/// With numerators that are too large nothing is known of what a float is rounded to: products are small, also where
/// sizes are larger ones. Nor is anything where such a size divides by zero.
std::optional<ir::Dim> small_product(const ir::Dim& left, const ir::Dim& right) try {
  constexpr double kLargest = std::int64_t{1} << 40U;
  const bool is_small = std::abs(static_cast<double>(left.hint) * static_cast<double>(right.hint)) <= kLargest &&
                        std::abs(static_cast<double>(ir::evaluate(left, small_sizes(left))) *
                                 static_cast<double>(ir::evaluate(right, small_sizes(right)))) <= kLargest;
  return is_small && !tracer::may_be_large(left, right) ? std::optional(left * right) : std::nullopt;
} catch (const ir::SizeDividedByZero&) {
  return std::nullopt;
}

std::optional<SizeFraction> fraction_if_small(const std::optional<ir::Dim>& numerator,
                                              const std::optional<ir::Dim>& denominator) {
  if (!numerator || !denominator || denominator->hint < 1) return std::nullopt;
  return SizeFraction{*numerator, *denominator};
}

std::optional<SizeFraction> sum_of_fractions(const SizeFraction& left, const SizeFraction& right) {
  const auto first = small_product(left.numerator, right.denominator);
  const auto second = small_product(right.numerator, left.denominator);
  if (!first || !second) return std::nullopt;
  return fraction_if_small(*first + *second, small_product(left.denominator, right.denominator));
}

// An operation that could give an integer where its operands, which Python has rounded, are none has no fraction: one
// operand has to be exact. Divisors have been compared with zero.
std::optional<SizeFraction> combine(std::string_view operation, const SizeFraction& left, const SizeFraction& right) {
  const auto& [a, b] = left;
  const auto& [c, d] = right;
  if (operation == "float") return left;
  if (operation == "neg") return SizeFraction{negative(a), b};
  if (operation == "+" && (is_exact(left) || is_exact(right))) return sum_of_fractions(left, right);
  if (operation == "-" && (is_exact(left) || is_exact(right))) return sum_of_fractions(left, {negative(c), d});
  const auto scales = [](const SizeFraction& fraction) {
    return is_power_of_two(fraction.numerator) && is_exact(fraction);
  };
  if (operation == "*" && ((is_exact(left) && is_exact(right)) || scales(left) || scales(right))) {
    return fraction_if_small(small_product(a, c), small_product(b, d));
  }
  if (operation == "/" && is_exact(right) && c.hint != 0) {
    return c.hint > 0 ? fraction_if_small(small_product(a, d), small_product(b, c))
                      : fraction_if_small(small_product(negative(a), d), small_product(b, negative(c)));
  }
  return std::nullopt;
}

/// The size that an operation takes the square root of. Between that and an integer, other than itself, lie many
/// floats.
std::optional<ir::Dim> radicand_of(std::string_view operation, const SizeFraction& left, const SizeFraction& right) {
  const bool is_half = right.numerator == ir::Dim(1) && right.denominator == ir::Dim(2);
  const bool is_root = operation == "sqrt" || (operation == "**" && is_half);
  return is_root && left.denominator == ir::Dim(1) ? small_product(left.numerator, 1) : std::nullopt;
}

// --- floats step by step

std::optional<RoundedFloat> float_of(PyObject* object) {
  if (const auto dim = dim_of_size_number(object)) return RoundedFloat{*dim};
  const SizeOrigin* origin = origin_of(object);
  return origin == nullptr ? std::nullopt : origin->rounded;
}

/// A number that floats hold as it is.
std::optional<double> constant_of(PyObject* object) {
  object = plain_number(object);
  if (PyFloat_CheckExact(object)) {
    const double number = PyFloat_AS_DOUBLE(object);
    return std::isfinite(number) ? std::optional(number) : std::nullopt;
  }
  if (!PyLong_CheckExact(object)) return std::nullopt;
  constexpr long long kLargest = 1LL << 53;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  const bool is_held = overflow == 0 && number <= kLargest && number >= -kLargest;
  return is_held ? std::optional(static_cast<double>(number)) : std::nullopt;
}

/// Whether it is negative at no size: roots and powers of negative numbers are none, or complex.
bool is_never_negative(const RoundedFloat& number) {
  const auto least = ir::least_value(number.size);
  return least && *least >= 0 && std::ranges::all_of(number.steps, [](const ir::FloatStep& step) {
           return step.operation != ir::FloatOperation::kNegate && step.operand >= 0;
         });
}

std::optional<RoundedFloat> with_step(RoundedFloat number, ir::FloatOperation operation, double operand = 0) {
  constexpr std::size_t kMost = 16;
  if (number.steps.size() >= kMost) return std::nullopt;
  number.steps.push_back({operation, operand});
  return number;
}

/// The operation on floats, one of which depends on sizes; nullopt: it is not known as steps on one size.
std::optional<RoundedFloat> next_float(std::string_view operation, PyObject* left, PyObject* right) {
  using Operation = ir::FloatOperation;
  const auto first = float_of(left);
  if (operation == "float") return first;
  if (operation == "neg") return first ? with_step(*first, Operation::kNegate) : std::nullopt;
  if (operation == "sqrt") {
    return first && is_never_negative(*first) ? with_step(*first, Operation::kSquareRoot) : std::nullopt;
  }
  const auto second = float_of(right);
  const auto constant = constant_of(first ? right : left);
  if (first.has_value() == second.has_value() || !constant) return std::nullopt;
  const RoundedFloat& number = first ? *first : *second;
  if (operation == "+") return with_step(number, Operation::kAdd, *constant);
  if (operation == "*") return with_step(number, Operation::kMultiply, *constant);
  if (operation == "-" && first) return with_step(number, Operation::kAdd, -*constant);
  if (operation == "-") {
    const auto negative = with_step(number, Operation::kNegate);
    return negative ? with_step(*negative, Operation::kAdd, *constant) : std::nullopt;
  }
  if (operation == "/" && first && *constant != 0) return with_step(number, Operation::kDivide, *constant);
  const bool is_power = operation == "**" && first && *constant > 0 && is_never_negative(number);
  return is_power ? with_step(number, Operation::kPower, *constant) : std::nullopt;
}

/// Null without an exception: it may be too large for a size.
PyObject* round_steps(std::string_view function, const std::shared_ptr<tracer::SizeScope>& scope,
                      const RoundedFloat& number) {
  const ir::FloatRounding rounding = function == "floor"   ? ir::FloatRounding::kFloor
                                     : function == "ceil"  ? ir::FloatRounding::kCeil
                                     : function == "round" ? ir::FloatRounding::kNearestEven
                                                           : ir::FloatRounding::kTruncate;
  const ir::Dim size = ir::round_float(number.size, {number.steps, rounding});
  const bool is_within = scope->shadows == nullptr || scope->shadows->keep_within_range(size);
  return is_within ? make_size(scope, size) : nullptr;
}

// --- what numbers come from

struct Origins {
  std::shared_ptr<tracer::SizeScope> scope;
  ir::Dims sizes;
};

Origins origins_of(PyObject* left, PyObject* right) {
  Origins origins;
  for (PyObject* object : {left, right}) {
    if (const auto size = size_of(object)) {
      origins.scope = size->scope;
      origins.sizes.push_back(size->dim);
    } else if (const SizeOrigin* origin = origin_of(object)) {
      origins.scope = origin->scope;
      std::ranges::copy(origin->sizes, std::back_inserter(origins.sizes));
    }
  }
  return origins;
}

void assume_all(const tracer::SizeScope& scope, const tracer::Compared& compared) {
  for (const ir::Condition& condition : compared.conditions) {
    if (scope.shadows != nullptr) scope.shadows->assume(condition);
  }
}

c10::Scalar scalar_of(PyObject* object) {
  if (const auto dim = dim_of_size_number(object)) return dim->hint;
  if (is_traced_number(object)) return as_traced(object).number.value;
  return PyFloat_CheckExact(object) ? c10::Scalar(PyFloat_AS_DOUBLE(object))
                                    : c10::Scalar(static_cast<std::int64_t>(PyLong_AsLongLong(object)));
}

tracer::NumberOperand recorded_operand(PyObject* object) {
  if (const auto dim = dim_of_size_number(object)) return *dim;
  if (is_traced_number(object) && !as_traced(object).looked_at) return as_traced(object).number;
  return scalar_of(object);
}

/// Whether floats may be made of numbers that depend on ints from outside: of those that are no inputs, as a remainder
/// of them was looked at. Larger ints than floats hold are computed with as they are.
bool may_be_floats(const Origins& origins) {
  const auto* shadows = dynamic_cast<const tracer::SizeShadows*>(origins.scope->shadows);
  if (shadows == nullptr) return false;
  std::vector<std::uint32_t> used, symbols;
  for (const tracer::SizeShadows::Assumed& assumed : shadows->assumed()) {
    if (assumed.condition.kind == ir::Condition::Kind::kDivisible) ir::add_symbols(assumed.condition, used);
  }
  for (const ir::Dim& size : origins.sizes) ir::add_symbols(size, symbols);
  const auto is_used = [&](std::uint32_t symbol) {
    return !ints_from_outside().contains(symbol) || std::ranges::find(used, symbol) != used.end();
  };
  if (!std::ranges::all_of(symbols, is_used)) return false;
  constexpr std::int64_t kLargest = std::int64_t{1} << 53U;
  if (std::ranges::any_of(origins.sizes, [](const ir::Dim& size) { return std::llabs(size.hint) > kLargest; }))
    return false;
  for (const ir::Dim& size : origins.sizes) {
    origins.scope->shadows->assume({ir::Condition::Kind::kAtMost, size, kLargest});
    origins.scope->shadows->assume({ir::Condition::Kind::kAtMost, -kLargest, size});
  }
  return true;
}

std::int64_t power_of_two(std::int64_t exponent) { return std::int64_t{1} << exponent; }

/// That a size is from `least` to `most`.
std::vector<ir::Condition> within(std::int64_t least, const ir::Dim& size, std::int64_t most) {
  using Kind = ir::Condition::Kind;
  return {{Kind::kAtMost, least, size}, {Kind::kAtMost, size, most}};
}

/// The conditions under which a logarithm is rounded to the same int. Those of larger sizes may be rounded up as
/// floats.
std::vector<ir::Condition> level_of_logarithm(std::string_view function, const ir::Dim& size, std::int64_t exponent) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 40U;
  if (size.hint < 1 || size.hint > kLargest) return {};
  if (function == "ceil") {
    return within(exponent == 0 ? 1 : power_of_two(exponent - 1) + 1, size, power_of_two(exponent));
  }
  const bool rounds_down = function == "floor" || function == "int" || function == "trunc";
  return rounds_down ? within(power_of_two(exponent), size, power_of_two(exponent + 1) - 1)
                     : std::vector<ir::Condition>();
}

/// The conditions under which `left operation right` is the int that it is; empty: none are known.
std::vector<ir::Condition> level_of(std::string_view operation, PyObject* left, PyObject* right, PyObject* real) {
  static constexpr std::array<std::string_view, 9> kOfInts{"+", "-", "*", "//", "%", "**", "neg", "abs", "int"};
  if (!PyLong_CheckExact(real)) return {};
  const SizeOrigin* const first = origin_of(left);
  if (first != nullptr && first->power) return level_of_logarithm(operation, *first->power, PyLong_AsLongLong(real));
  if (std::ranges::find(kOfInts, operation) == kOfInts.end()) return {};
  std::vector<ir::Condition> level;
  for (PyObject* operand : {left, right}) {
    const SizeOrigin* const origin = origin_of(operand);
    if (origin == nullptr && PyLong_CheckExact(operand)) continue;
    if (origin == nullptr || origin->level.empty()) return {};
    for (const ir::Condition& condition : origin->level) {
      if (std::ranges::find(level, condition) == level.end()) level.push_back(condition);
    }
  }
  return level;
}

/// Null without an exception: it is not recorded. `real` is what Python gave.
PyObject* record(std::string_view operation, PyObject* left, PyObject* right, const py::Ref& real) {
  const std::shared_ptr<NumberTrace> trace = current_trace();
  if (trace == nullptr || trace->recorder == nullptr || !is_plain(real.get())) return nullptr;
  const auto known = bridge::compute_number(operation, scalar_of(left), scalar_of(right));
  if (!known || !bridge::same_number(*known, scalar_of(real.get()))) return nullptr;
  Origins origins = origins_of(left, right);
  if (has_ints_from_outside(origins.sizes) && !may_be_floats(origins)) return nullptr;
  auto& [scope, sizes] = origins;
  const auto first = fraction_of(left), second = fraction_of(right);
  try {
    if (operation == "/" && second && !second->numerator.is_concrete()) {
      const auto comparison = second->numerator.hint > 0 ? SizeComparison::kGreater : SizeComparison::kLess;
      assume_all(*scope, tracer::compare_sizes(second->numerator, comparison, 0));
    }
    const std::shared_ptr<void> outside = trace->recorder->host.leave_program();
    const auto number =
        tracer::FollowedData(*trace->recorder).compute(operation, recorded_operand(left), recorded_operand(right));
    if (!number) return nullptr;
    auto origin = std::make_unique<SizeOrigin>(std::move(scope), std::move(sizes));
    if (first && second) origin->fraction = combine(operation, *first, *second);
    if (first && second) origin->radicand = radicand_of(operation, *first, *second);
    origin->rounded = next_float(operation, left, right);
    if (operation == "log2") origin->power = dim_of_size_number(left);
    origin->level = level_of(operation, left, right, real.get());
    return make_number(trace, *number, real, std::move(origin));
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

ir::Dim floor_of(const SizeFraction& fraction) { return ir::floor_divide(fraction.numerator, fraction.denominator); }
ir::Dim ceil_of(const SizeFraction& fraction) {
  return negative(ir::floor_divide(negative(fraction.numerator), fraction.denominator));
}

/// Half to even.
std::optional<ir::Dim> round_of(const SizeFraction& fraction) {
  const auto& [numerator, denominator] = fraction;
  if (denominator == ir::Dim(1)) return numerator;
  const ir::Dim below = floor_of(fraction);
  if (denominator == ir::Dim(2)) {
    return below + tracer::floor_remainder(numerator, 2) * tracer::floor_remainder(below, 2);
  }
  if (!denominator.is_concrete() || denominator.hint % 2 == 0) return std::nullopt;
  return ir::floor_divide(ir::Dim(2) * numerator + denominator, ir::Dim(2) * denominator);
}

/// The square root of a size, rounded. Null without an exception: nobody knows.
PyObject* round_root(std::string_view function, const std::shared_ptr<tracer::SizeScope>& scope, const ir::Dim& dim) {
  const bool rounds_up = function == "ceil";
  if (dim.hint < (rounds_up ? 1 : 0)) return nullptr;
  assume_all(*scope, tracer::compare_sizes(dim, SizeComparison::kGreaterOrEqual, rounds_up ? 1 : 0));
  if (rounds_up) return make_size(scope, ir::square_root(dim - ir::Dim(1)) + ir::Dim(1));
  if (function != "round") return make_size(scope, ir::square_root(dim));
  return make_size(scope, ir::floor_divide(ir::square_root(ir::Dim(4) * dim) + ir::Dim(1), 2));
}

}  // namespace

NumbersOfSizes::NumbersOfSizes(std::shared_ptr<NumberTrace> trace)
    : before_(std::exchange(current_trace(), std::move(trace))),
      ints_before_(std::exchange(ints_from_outside(), {})),
      tensors_before_(std::exchange(sizes_in_tensors(), {})) {}
NumbersOfSizes::~NumbersOfSizes() {
  current_trace() = std::move(before_);
  ints_from_outside() = std::move(ints_before_);
  sizes_in_tensors() = std::move(tensors_before_);
}
void NumbersOfSizes::add_int(std::uint32_t symbol) { ints_from_outside().insert(symbol); }

bool is_from_sizes(PyObject* object) { return is_size_number(object) || origin_of(object) != nullptr; }

PyObject* combine_sizes(std::string_view operation, PyObject* left, PyObject* right) {
  left = plain_number(left);
  right = plain_number(right);
  const auto is_known = [](PyObject* object) { return is_from_sizes(object) || is_plain(object); };
  if (!is_known(left) || !is_known(right)) return nullptr;
  if (type_of_size(left) != nullptr || type_of_size(right) != nullptr) return nullptr;  // NumPy's floats are others
  const auto real_of = [](PyObject* object) {
    if (const auto dim = dim_of_size_number(object)) return py::Ref::steal(PyLong_FromLongLong(dim->hint));
    return py::Ref::share(is_traced_number(object) ? as_traced(object).real : object);
  };
  const py::Ref first = real_of(left), second = real_of(right);
  if (!first || !second) return nullptr;
  struct Row {
    std::string_view operation;
    binaryfunc compute;
  };
  static constexpr std::array kRows{Row{"+", PyNumber_Add},
                                    Row{"-", PyNumber_Subtract},
                                    Row{"*", PyNumber_Multiply},
                                    Row{"/", PyNumber_TrueDivide},
                                    Row{"//", PyNumber_FloorDivide},
                                    Row{"%", PyNumber_Remainder},
                                    Row{"**", [](PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }},
                                    Row{"neg", [](PyObject* a, PyObject*) { return PyNumber_Negative(a); }},
                                    Row{"abs", [](PyObject* a, PyObject*) { return PyNumber_Absolute(a); }},
                                    Row{"float", [](PyObject* a, PyObject*) { return PyNumber_Float(a); }}};
  const auto* row = std::ranges::find(kRows, operation, &Row::operation);
  if (row == kRows.end()) return nullptr;
  const py::Ref real = py::Ref::steal(row->compute(first.get(), second.get()));
  if (!real) return PyErr_Clear(), nullptr;  // it is raised where the sizes are numbers
  // A negative exponent makes floats of ints.
  const bool is_power_of_ints = operation == "**" && PyLong_CheckExact(first.get()) && PyLong_CheckExact(second.get());
  if (is_power_of_ints && PyFloat_CheckExact(real.get()) && is_plain(right)) {
    const py::Ref exponent = py::Ref::steal(PyNumber_Float(right));
    return exponent ? record(operation, left, exponent.get(), real) : nullptr;
  }
  return record(operation, left, right, real);
}

std::optional<int> compare_fractions(PyObject* left, PyObject* right, int operation) {
  static constexpr std::array kComparisons{SizeComparison::kLess,    SizeComparison::kLessOrEqual,
                                           SizeComparison::kEqual,   SizeComparison::kNotEqual,
                                           SizeComparison::kGreater, SizeComparison::kGreaterOrEqual};
  if (!is_from_sizes(left) && !is_from_sizes(right)) return std::nullopt;
  const auto first = fraction_of(left), second = fraction_of(right);
  if (!first || !second || (!is_exact(*first) && !is_exact(*second))) return std::nullopt;
  const auto less = small_product(first->numerator, second->denominator);
  const auto more = small_product(second->numerator, first->denominator);
  if (!less || !more) return std::nullopt;
  const auto comparison = kComparisons[static_cast<std::size_t>(operation)];
  try {
    const tracer::Compared compared = tracer::compare_sizes(*less, comparison, *more);
    assume_all(*origins_of(left, right).scope, compared);
    return compared.outcome ? 1 : 0;
  } catch (...) {
    set_python_error();
    return -1;
  }
}

PyObject* round_to_size(std::string_view function, PyObject* number) {
  static constexpr std::array<std::string_view, 5> kFunctions{"floor", "ceil", "round", "trunc", "int"};
  if (std::ranges::find(kFunctions, function) == kFunctions.end() || !is_from_sizes(number)) return nullptr;
  const auto fraction = fraction_of(number);
  const SizeOrigin* origin = origin_of(number);
  const bool has_root = origin != nullptr && origin->radicand;
  if (!fraction && !has_root && (origin == nullptr || !origin->rounded)) return nullptr;
  const std::shared_ptr<tracer::SizeScope> scope = origins_of(number, number).scope;
  try {
    if (!fraction && !has_root) return round_steps(function, scope, *origin->rounded);
    if (!fraction) return round_root(function, scope, *origin->radicand);
    if (function == "floor") return make_size(scope, floor_of(*fraction));
    if (function == "ceil") return make_size(scope, ceil_of(*fraction));
    if (function == "round") {
      const auto rounded = round_of(*fraction);
      if (rounded) return make_size(scope, *rounded);
      return origin != nullptr && origin->rounded ? round_steps(function, scope, *origin->rounded) : nullptr;
    }
    const tracer::Compared sign = tracer::compare_sizes(fraction->numerator, SizeComparison::kGreaterOrEqual, 0);
    assume_all(*scope, sign);
    return make_size(scope, sign.outcome ? floor_of(*fraction) : ceil_of(*fraction));
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* compute_math_of_size(std::string_view name, PyObject* size) {
  if (name == "floor" || name == "ceil" || name == "trunc") return size_as(nullptr, size);
  if (name == "isqrt") {
    return or_python_error([&] { return round_root("floor", size_of(size)->scope, *dim_of_size_number(size)); });
  }
  const py::Ref module = py::Ref::steal(py::import_module("math"));
  const py::Ref function =
      py::Ref::steal(module ? PyObject_GetAttrString(module.get(), std::string(name).c_str()) : nullptr);
  const py::Ref plain = py::Ref::steal(PyLong_FromLongLong(dim_of_size_number(size)->hint));
  const py::Ref real = py::Ref::steal(function && plain ? PyObject_CallOneArg(function.get(), plain.get()) : nullptr);
  if (!real) return PyErr_Clear(), nullptr;
  return PyFloat_CheckExact(real.get()) ? record(name, size, size, real) : nullptr;
}

PyObject* record_of_sizes(std::string_view operation, PyObject* left, PyObject* right, const py::Ref& real) {
  return record(operation, left, right, real);
}

PyObject* traced_number_of_size(PyObject* size) {
  const py::Ref real = py::Ref::steal(PyLong_FromLongLong(dim_of_size_number(size)->hint));
  return real ? record("int", size, size, real) : nullptr;
}

void note_size_in(PyObject* tensor, PyObject* size) {
  const ir::ValueId value = value_for_size(tensor);
  if (value != ir::kNoValue) sizes_in_tensors().insert_or_assign(value, py::Ref::share(size));
}

bool holds_size(PyObject* tensor) {
  return !sizes_in_tensors().empty() && sizes_in_tensors().contains(value_for_size(tensor));
}

PyObject* size_in(PyObject* tensor) { return Py_NewRef(sizes_in_tensors().at(value_for_size(tensor)).get()); }

bool is_level_of_sizes(PyObject* object) {
  const SizeOrigin* const origin = origin_of(object);
  return origin != nullptr && !origin->level.empty();
}

PyObject* bit_length_of_size(PyObject* size) {
  const auto known = size_of(size);
  if (!known || known->dim.hint < 1) {
    const py::Ref real = py::Ref::steal(look_at_size(size));
    return real ? PyObject_CallMethod(real.get(), "bit_length", nullptr) : nullptr;
  }
  const auto length = static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(known->dim.hint)));
  return or_python_error([&] {
    assume_all(*known->scope, {true, within(power_of_two(length - 1), known->dim, power_of_two(length) - 1)});
    return PyLong_FromLongLong(length);
  });
}

void look_at_origin(const SizeOrigin& origin) {
  if (origin.scope->shadows == nullptr) return;
  for (const ir::Condition& condition : origin.level) origin.scope->shadows->assume(condition);
  if (!origin.level.empty()) return;
  for (const ir::Dim& size : origin.sizes) origin.scope->shadows->pin_symbols_of(size);
}

}  // namespace thunder::dispatch
