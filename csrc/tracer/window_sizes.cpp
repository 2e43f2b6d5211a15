#include "tracer/window_sizes.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include "tracer/size_node.h"

namespace thunder::tracer {
namespace {

using c10::IValue;
using Numbers = std::vector<std::int64_t>;

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
std::optional<Numbers> numbers_of(const IValue* value, std::size_t rank, const Numbers& missing) {
  if (value == nullptr || value->isNone()) return missing;
  if (value->isString() && value->toStringRef() == "valid") return Numbers(rank, 0);
  if (value->isInt()) return Numbers(rank, value->toInt());
  if (!value->isIntList()) return std::nullopt;
  Numbers numbers = value->toIntVector();
  if (numbers.empty()) return missing;
  if (numbers.size() == 1) numbers.resize(rank, numbers[0]);
  return numbers.size() == rank ? std::optional(numbers) : std::nullopt;
}

/// The size of the windows in each dimension; nullopt: it is not known.
std::optional<ir::Dims> kernel_of(const c10::OperatorHandle& op, std::span<const IValue> arguments, std::size_t rank,
                                  const FindSize& find_size) {
  const IValue* weight = find(op, arguments, "weight");
  if (weight == nullptr) {
    const auto numbers = numbers_of(find(op, arguments, "kernel_size"), rank, {});
    return numbers ? std::optional(ir::Dims(numbers->begin(), numbers->end())) : std::nullopt;
  }
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
  Numbers usual_stride(rank, 1);
  for (std::size_t i = 0; is_pool && i < rank; ++i) usual_stride[i] = (*kernel)[i].hint;
  const auto stride = numbers_of(find(op, arguments, "stride"), rank, usual_stride);
  const auto padding = numbers_of(find(op, arguments, "padding"), rank, Numbers(rank, 0));
  const auto dilation = numbers_of(find(op, arguments, "dilation"), rank, Numbers(rank, 1));
  const auto more = numbers_of(find(op, arguments, "output_padding"), rank, Numbers(rank, 0));
  if (!stride || !padding || !dilation || !more) return {};
  std::vector<ir::Dim> counts;
  for (std::size_t i = 0; i < rank; ++i) {
    if ((*stride)[i] < 1) return {};
    const ir::Dim reach = ir::Dim((*dilation)[i]) * ((*kernel)[i] - ir::Dim(1)) + ir::Dim(1);
    const ir::Dim& size = sizes[sizes.size() - rank + i];
    if (is_transposed) {
      counts.push_back((size - ir::Dim(1)) * ir::Dim((*stride)[i]) + reach + ir::Dim((*more)[i] - 2 * (*padding)[i]));
      continue;
    }
    const ir::Dim room = size + ir::Dim(2 * (*padding)[i]) - reach;
    if (!rounds_up) {
      counts.push_back(ir::floor_divide(room, (*stride)[i]) + ir::Dim(1));
      continue;
    }
    const ir::Dim count = ir::floor_divide(room + ir::Dim((*stride)[i] - 1), (*stride)[i]) + ir::Dim(1);
    const ir::Dim begin = (count - ir::Dim(1)) * ir::Dim((*stride)[i]);
    const ir::Dim end = size + ir::Dim((*padding)[i]);
    // The last window begins within the image, or within its padding on the left.
    const Compared is_within = compare_sizes(begin, SizeComparison::kLess, end);
    std::ranges::copy(is_within.conditions, std::back_inserter(conditions));
    counts.push_back(is_within.outcome ? count : count - ir::Dim(1));
  }
  return counts;
}

}  // namespace thunder::tracer
