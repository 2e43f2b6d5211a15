#include "tracer/size_node.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace thunder::tracer {
namespace {

using c10::SymNode;
using Kind = ir::Condition::Kind;

SymNode decision(const std::shared_ptr<SizeScope>& scope, Compared compared) {
  return c10::make_intrusive<SizeDecision>(scope, compared.outcome, std::move(compared.conditions));
}

const SizeDecision& as_decision(const SymNode& node) {
  const auto* found = dynamic_cast<const SizeDecision*>(node.get());
  TORCH_CHECK(found != nullptr, "thunder.jit: a size is compared with somebody else's");
  return *found;
}

}  // namespace

bool is_certain(const ir::Condition& condition) {
  const auto is_at_most = [](const ir::Dim& left, const ir::Dim& right) {
    const auto least = ir::least_value(right - left);
    return least && *least >= 0;
  };
  switch (condition.kind) {
    case Kind::kEqual:
      return condition.left == condition.right;
    case Kind::kDivisible:
      return ir::exact_quotient(condition.left, condition.right).has_value();
    case Kind::kAtMost:
      return is_at_most(condition.left, condition.right);
  }
  return false;
}

namespace {

/// `left == right`; that a remainder is zero says that a number divides.
ir::Condition equality(const ir::Dim& left, const ir::Dim& right) {
  for (const ir::SizeFunction& function : ir::functions_in(left)) {
    const bool is_quotient = function.operation == ir::SizeOperation::kFloorDivide;
    if (is_quotient && right == ir::Dim(0) && left == floor_remainder(function.left, function.right)) {
      return {Kind::kDivisible, function.left, function.right};
    }
  }
  return {Kind::kEqual, left, right};
}

}  // namespace

Compared compare_sizes(const ir::Dim& left, SizeComparison comparison, const ir::Dim& right) {
  const auto at_most = [](const ir::Dim& a, const ir::Dim& b) { return ir::Condition{Kind::kAtMost, a, b}; };
  const auto below = [&](const ir::Dim& a, const ir::Dim& b) { return at_most(a + ir::Dim(1), b); };
  const auto keep = [](bool outcome, ir::Condition condition) {
    return is_certain(condition) ? Compared{outcome, {}} : Compared{outcome, {std::move(condition)}};
  };
  switch (comparison) {
    case SizeComparison::kLess:
      return left.hint < right.hint ? keep(true, below(left, right)) : keep(false, at_most(right, left));
    case SizeComparison::kLessOrEqual:
      return left.hint <= right.hint ? keep(true, at_most(left, right)) : keep(false, below(right, left));
    case SizeComparison::kGreater:
      return compare_sizes(right, SizeComparison::kLess, left);
    case SizeComparison::kGreaterOrEqual:
      return compare_sizes(right, SizeComparison::kLessOrEqual, left);
    case SizeComparison::kEqual:
    case SizeComparison::kNotEqual: {
      const bool is_equal = comparison == SizeComparison::kEqual;
      if (left.hint == right.hint) return keep(is_equal, equality(left, right));
      return keep(!is_equal, left.hint < right.hint ? below(left, right) : below(right, left));
    }
  }
  return {};
}

bool may_be_large(const ir::Dim& left, const ir::Dim& right) {
  // Different sizes are together no larger than memory.
  constexpr double kLarge = 0x1p24, kLargeTogether = 0x1p16, kMost = 0x1p50;
  std::vector<std::uint32_t> ours, others, shared;
  ir::add_symbols(left, ours);
  ir::add_symbols(right, others);
  std::ranges::set_intersection(ours, others, std::back_inserter(shared));
  const double size = shared.empty() ? kLargeTogether : kLarge;
  const auto size_of = [size](std::uint32_t) { return size; };
  return ir::magnitude(left, size_of) * ir::magnitude(right, size_of) > kMost;
}

ir::Dim floor_remainder(const ir::Dim& left, const ir::Dim& right) {
  return left - right * ir::floor_divide(left, right);
}

const SizeNode* size_node_of(const c10::SymInt& size) {
  return size.is_heap_allocated() ? dynamic_cast<const SizeNode*>(size.toSymNodeImplUnowned()) : nullptr;
}

ir::Dim dim_of(const c10::SymInt& size) {
  const SizeNode* node = size_node_of(size);
  return node == nullptr ? ir::Dim(size.guard_int(__FILE__, __LINE__)) : node->dim();
}

// --- numbers

std::int64_t SizeNode::look_at() const {
  if (scope_->shadows != nullptr) scope_->shadows->pin_symbols_of(dim_);
  return dim_.hint;
}

ir::Dim SizeNode::dim_of(const SymNode& node) {
  if (const auto* size = dynamic_cast<const SizeNode*>(node.get())) return size->dim();
  return node->guard_int(__FILE__, __LINE__);
}

SymNode SizeNode::with(const ir::Dim& dim) const {
  if (scope_->shadows != nullptr) scope_->shadows->note_expression(dim);
  return c10::make_intrusive<SizeNode>(scope_, dim);
}

SymNode SizeNode::clone() { return with(dim_); }
SymNode SizeNode::wrap_int(std::int64_t number) { return with(number); }
SymNode SizeNode::wrap_bool(bool value) { return decision(scope_, {value, {}}); }
SymNode SizeNode::add(const SymNode& other) { return with(dim_ + dim_of(other)); }
SymNode SizeNode::sub(const SymNode& other) { return with(dim_ - dim_of(other)); }
SymNode SizeNode::mul(const SymNode& other) { return with(dim_ * dim_of(other)); }
SymNode SizeNode::neg() { return with(ir::Dim(-1) * dim_); }
SymNode SizeNode::sym_min(const SymNode& other) { return with(ir::smaller(dim_, dim_of(other))); }
SymNode SizeNode::sym_max(const SymNode& other) { return with(ir::larger(dim_, dim_of(other))); }

SymNode SizeNode::floordiv(const SymNode& other) {
  const ir::Dim divisor = dim_of(other);
  TORCH_CHECK(divisor.hint != 0, "integer division or modulo by zero");
  if (scope_->shadows != nullptr) scope_->shadows->require_divisor(divisor);
  return with(ir::floor_divide(dim_, divisor));
}

SymNode SizeNode::mod(const SymNode& other) {
  const ir::Dim divisor = dim_of(other);
  TORCH_CHECK(divisor.hint != 0, "integer division or modulo by zero");
  if (scope_->shadows != nullptr) scope_->shadows->require_divisor(divisor);
  return with(floor_remainder(dim_, divisor));
}

SymNode SizeNode::eq(const SymNode& other) {
  return decision(scope_, compare_sizes(dim_, SizeComparison::kEqual, dim_of(other)));
}
SymNode SizeNode::ne(const SymNode& other) {
  return decision(scope_, compare_sizes(dim_, SizeComparison::kNotEqual, dim_of(other)));
}
SymNode SizeNode::lt(const SymNode& other) {
  return decision(scope_, compare_sizes(dim_, SizeComparison::kLess, dim_of(other)));
}
SymNode SizeNode::le(const SymNode& other) {
  return decision(scope_, compare_sizes(dim_, SizeComparison::kLessOrEqual, dim_of(other)));
}
SymNode SizeNode::gt(const SymNode& other) {
  return decision(scope_, compare_sizes(dim_, SizeComparison::kGreater, dim_of(other)));
}
SymNode SizeNode::ge(const SymNode& other) {
  return decision(scope_, compare_sizes(dim_, SizeComparison::kGreaterOrEqual, dim_of(other)));
}

std::optional<std::int64_t> SizeNode::constant_int() {
  return dim_.is_concrete() ? std::optional(dim_.hint) : std::nullopt;
}

// --- outcomes

bool SizeDecision::decide() const {
  for (const ir::Condition& condition : conditions_) {
    if (scope_->shadows != nullptr) scope_->shadows->assume(condition);
  }
  return outcome_;
}

SymNode SizeDecision::wrap_bool(bool value) { return decision(scope_, {value, {}}); }

// One part of a conjunction that does not hold says so.
SymNode SizeDecision::sym_and(const SymNode& node) {
  const SizeDecision& other = as_decision(node);
  if (!outcome_ || !other.outcome_) {
    const bool is_this = !outcome_ && (other.outcome_ || conditions_.size() <= other.conditions_.size());
    return decision(scope_, {false, is_this ? conditions_ : other.conditions_});
  }
  std::vector<ir::Condition> both = conditions_;
  std::ranges::copy(other.conditions_, std::back_inserter(both));
  return decision(scope_, {true, std::move(both)});
}

SymNode SizeDecision::sym_not() { return decision(scope_, {!outcome_, conditions_}); }
SymNode SizeDecision::sym_or(const SymNode& node) { return sym_not()->sym_and(node->sym_not())->sym_not(); }

std::optional<bool> SizeDecision::constant_bool() {
  return conditions_.empty() ? std::optional(outcome_) : std::nullopt;
}

}  // namespace thunder::tracer
