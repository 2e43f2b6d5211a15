#include "tracer/window_sizes.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "tracer/size_node.h"
#include "tracer/size_probes.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

const IValue* find(const c10::OperatorHandle& op, std::span<const IValue> arguments, std::string_view name) {
  const auto& parameters = op.schema().arguments();
  const auto found = std::ranges::find(parameters, name, &c10::Argument::name);
  return found == parameters.end() ? nullptr : &arguments[static_cast<std::size_t>(found - parameters.begin())];
}

bool is_set(const c10::OperatorHandle& op, std::span<const IValue> arguments, std::string_view name) {
  const IValue* value = find(op, arguments, name);
  return value != nullptr && value->isBool() && value->toBool();
}

/// A number for each dimension: of an argument that lists them, or has one for all. nullopt: they are no numbers.
std::optional<ir::Dims> numbers_of(const IValue* value, std::size_t rank, const ir::Dims& missing) {
  if (value == nullptr || value->isNone()) return missing;
  if (value->isString() && value->toStringRef() == "valid") return ir::Dims(rank, 0);
  const bool is_number = value->isInt() || value->isSymInt();
  if (!is_number && !value->isIntList() && !value->isSymIntList()) return std::nullopt;
  ir::Dims numbers = sizes_in(*value);
  if (numbers.empty()) return missing;
  if (numbers.size() == 1) numbers.resize(rank, numbers[0]);
  return numbers.size() == rank ? std::optional(numbers) : std::nullopt;
}

/// The size of the windows in each dimension; nullopt: it is not known.
std::optional<ir::Dims> kernel_of(const c10::OperatorHandle& op, std::span<const IValue> arguments, std::size_t rank,
                                  const FindSize& find_size) {
  const IValue* weight = find(op, arguments, "weight");
  if (weight == nullptr) return numbers_of(find(op, arguments, "kernel_size"), rank, {});
  if (!weight->isTensor()) return std::nullopt;
  ir::Dims kernel;
  for (std::size_t i = 0; i < rank; ++i) {
    const auto size = find_size(*weight, static_cast<std::int64_t>(i) + 2);
    if (!size) return std::nullopt;
    kernel.push_back(*size);
  }
  return kernel;
}

/// The number of dimensions that windows slide along, by the longest of the lists; zero: nobody says.
std::size_t rank_of(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  const IValue* weight = find(op, arguments, "weight");
  if (weight != nullptr && weight->isTensor()) {
    return static_cast<std::size_t>(std::max<std::int64_t>(weight->toTensor().dim() - 2, 0));
  }
  const auto argument = std::ranges::find(op.schema().arguments(), "kernel_size", &c10::Argument::name);
  return argument == op.schema().arguments().end() ? 0 : static_cast<std::size_t>(argument->N().value_or(0));
}

}  // namespace

bool slides_windows(const c10::OperatorHandle& op) {
  const auto has = [&](std::string_view name) {
    const auto& parameters = op.schema().arguments();
    return std::ranges::find(parameters, name, &c10::Argument::name) != parameters.end();
  };
  const bool is_backward = has("grad_output");
  return has("stride") && has("padding") && (has("kernel_size") || has("weight")) && !is_backward;
}

std::vector<ir::Dim> window_counts(const c10::OperatorHandle& op, std::span<const IValue> arguments,
                                   const ir::Dims& sizes, const FindSize& find_size,
                                   std::vector<ir::Condition>& conditions) {
  const bool is_transposed = is_set(op, arguments, "transposed") ||
                             (find(op, arguments, "output_padding") != nullptr && !find(op, arguments, "transposed"));
  const std::size_t rank = rank_of(op, arguments);
  const bool rounds_up = is_set(op, arguments, "ceil_mode");
  if (rank == 0 || rank > sizes.size()) return {};
  const auto kernel = kernel_of(op, arguments, rank, find_size);
  if (!kernel || kernel->size() != rank) return {};
  const bool is_pool = find(op, arguments, "weight") == nullptr;
  const auto stride = numbers_of(find(op, arguments, "stride"), rank, is_pool ? *kernel : ir::Dims(rank, 1));
  const auto padding = numbers_of(find(op, arguments, "padding"), rank, ir::Dims(rank, 0));
  const auto dilation = numbers_of(find(op, arguments, "dilation"), rank, ir::Dims(rank, 1));
  const auto more = numbers_of(find(op, arguments, "output_padding"), rank, ir::Dims(rank, 0));
  if (!stride || !padding || !dilation || !more) return {};
  std::vector<ir::Dim> counts;
  for (std::size_t i = 0; i < rank; ++i) {
    const ir::Dim& step = (*stride)[i];
    if (step.hint < 1) return {};
    const ir::Dim reach = (*dilation)[i] * ((*kernel)[i] - ir::Dim(1)) + ir::Dim(1);
    const ir::Dim& size = sizes[sizes.size() - rank + i];
    if (is_transposed) {
      counts.push_back((size - ir::Dim(1)) * step + reach + (*more)[i] - ir::Dim(2) * (*padding)[i]);
      continue;
    }
    const ir::Dim room = size + ir::Dim(2) * (*padding)[i] - reach;
    if (!step.is_concrete() || !(*kernel)[i].is_concrete()) {
      for (const auto& [left, right] : {std::pair(ir::Dim(1), step), std::pair(ir::Dim(0), room)}) {
        const Compared is_legal = compare_sizes(left, SizeComparison::kLessOrEqual, right);
        if (!is_legal.outcome) return {};
        std::ranges::copy(is_legal.conditions, std::back_inserter(conditions));
      }
    }
    if (!rounds_up) {
      counts.push_back(ir::floor_divide(room, step) + ir::Dim(1));
      continue;
    }
    const ir::Dim count = ir::floor_divide(room + step - ir::Dim(1), step) + ir::Dim(1);
    const ir::Dim begin = (count - ir::Dim(1)) * step;
    const ir::Dim end = size + (*padding)[i];
    // The last window begins within the image, or within its padding on the left.
    const Compared is_within = compare_sizes(begin, SizeComparison::kLess, end);
    std::ranges::copy(is_within.conditions, std::back_inserter(conditions));
    counts.push_back(is_within.outcome ? count : count - ir::Dim(1));
  }
  return counts;
}

}  // namespace thunder::tracer
