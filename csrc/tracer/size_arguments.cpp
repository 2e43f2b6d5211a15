#include "tracer/size_arguments.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/condition.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

bool has_parameters(const c10::OperatorHandle& op, std::initializer_list<std::string_view> names) {
  return std::ranges::equal(op.schema().arguments(), names, {}, &c10::Argument::name);
}

bool is_size(const IValue& value) { return value.isInt() || value.isSymInt(); }

// A slice ends where the dimension does: its size is one of several expressions.
void note_slice(std::span<const IValue> arguments, SizeUses& uses, const FindSize& find_size) {
  if (!arguments[1].isInt() || !is_size(arguments[4])) return;
  const ir::Dim step = dim_of(arguments[4].toSymInt());
  if (step.hint < 1) return;
  const std::optional<ir::Dim> size = find_size(arguments[0], arguments[1].toInt());
  if (!size) return;
  const auto decide = [&](const ir::Dim& left, SizeComparison comparison, const ir::Dim& right) {
    const Compared compared = compare_sizes(left, comparison, right);
    for (const ir::Condition& condition : compared.conditions) uses.assume(condition);
    return compared.outcome;
  };
  const auto place_of = [&](const IValue& value, const ir::Dim& missing) {
    if (!is_size(value)) return missing;
    ir::Dim place = dim_of(value.toSymInt());
    if (place.is_concrete() && place.hint == std::numeric_limits<std::int64_t>::max()) return *size;
    const bool is_from_end = decide(place, SizeComparison::kLess, 0);
    if (is_from_end) place = place + *size;
    // Counted from the end, zero is where a slice begins that would begin before the dimension does.
    if (is_from_end && decide(place, SizeComparison::kLessOrEqual, 0)) return ir::Dim(0);
    return decide(place, SizeComparison::kLess, *size) ? place : *size;
  };
  const ir::Dim begin = place_of(arguments[2], 0);
  const ir::Dim end = place_of(arguments[3], *size);
  if (!decide(begin, SizeComparison::kLessOrEqual, end)) return;
  uses.require_divisor(step);
  uses.note_expression(begin);
  uses.note_expression(step == ir::Dim(1) ? end - begin : ir::floor_divide(end - begin + step - ir::Dim(1), step));
}

/// Decides from which end of a dimension an index counts, and that it is within.
void note_index(const ir::Dim& index, const ir::Dim& size, SizeUses& uses) {
  const bool is_from_end = index.hint < 0;
  const ir::Dim most = is_from_end ? ir::Dim(-1) * index : index + ir::Dim(1);
  for (const auto& [left, right] :
       {std::pair(most, size), std::pair(ir::Dim(is_from_end ? 1 : 0), is_from_end ? most : index)}) {
    if (left.hint > right.hint) return;  // an error
    for (const ir::Condition& condition : compare_sizes(left, SizeComparison::kLessOrEqual, right).conditions) {
      uses.assume(condition);
    }
  }
}

void note_select(std::span<const IValue> arguments, SizeUses& uses, const FindSize& find_size) {
  if (!arguments[1].isInt() || !is_size(arguments[2])) return;
  const std::optional<ir::Dim> size = find_size(arguments[0], arguments[1].toInt());
  if (size) note_index(dim_of(arguments[2].toSymInt()), *size, uses);
}

/// Its third argument is a dimension of the sizes that it is given.
void note_select_backward(std::span<const IValue> arguments, SizeUses& uses) {
  if (!arguments[1].isList() || !arguments[2].isInt() || !is_size(arguments[3])) return;
  const auto sizes = arguments[1].toListRef();
  const auto rank = static_cast<std::int64_t>(sizes.size());
  const std::int64_t dim = arguments[2].toInt() < 0 ? arguments[2].toInt() + rank : arguments[2].toInt();
  if (dim < 0 || dim >= rank) return;  // an error
  note_index(dim_of(arguments[3].toSymInt()), dim_of(sizes[static_cast<std::size_t>(dim)].toSymInt()), uses);
}

// With fewer than two windows the operation is another one, or an error.
void note_windows(const c10::OperatorHandle& op, std::span<const IValue> arguments, SizeUses& uses,
                  const FindSize& find_size) {
  if (!arguments[0].isTensor()) return;
  ir::Dims sizes;
  for (std::int64_t i = 0; i < arguments[0].toTensor().dim(); ++i) {
    const std::optional<ir::Dim> size = find_size(arguments[0], i);
    if (!size) return;
    sizes.push_back(*size);
  }
  std::vector<ir::Condition> conditions;
  const std::vector<ir::Dim> counts = window_counts(op, arguments, sizes, find_size, conditions);
  for (const ir::Condition& condition : conditions) uses.assume(condition);
  for (const ir::Dim& count : counts) {
    if (count.is_concrete() || count.hint < 2) continue;
    uses.assume({ir::Condition::Kind::kAtMost, 2, count});
    uses.note_expression(count);
  }
}

}  // namespace

void note_size_arguments(const c10::OperatorHandle& op, std::span<const IValue> arguments, SizeUses& uses,
                         const FindSize& find_size) {
  if (has_parameters(op, {"self", "dim", "start", "end", "step"})) note_slice(arguments, uses, find_size);
  if (has_parameters(op, {"self", "dim", "index"})) note_select(arguments, uses, find_size);
  if (has_parameters(op, {"grad_output", "input_sizes", "dim", "index"})) note_select_backward(arguments, uses);
  if (slides_windows(op)) note_windows(op, arguments, uses, find_size);
}

}  // namespace thunder::tracer
