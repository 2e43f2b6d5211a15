#include "tracer/view_sizes.h"

#include <algorithm>

namespace thunder::tracer {
namespace {

using c10::IValue;

/// `others`: the same argument at each sample.
bool add_sizes(std::size_t argument, const IValue& value, std::span<const IValue> others, ir::SizeFit& fit,
               std::vector<SizeInCall>& sizes) {
  const auto add = [&](std::optional<std::size_t> element, std::int64_t number, const auto& number_in) {
    std::vector<std::int64_t> numbers{number};
    for (const IValue& other : others) numbers.push_back(number_in(other));
    const std::optional<ir::Dim> dim = fit.find(numbers);
    if (dim && !dim->is_concrete()) sizes.push_back({argument, element, *dim});
    return dim.has_value();
  };
  if (value.isInt()) {
    if (!std::ranges::all_of(others, &IValue::isInt)) return false;
    return add(std::nullopt, value.toInt(), [](const IValue& other) { return other.toInt(); });
  }
  if (!value.isIntList()) {
    return std::ranges::all_of(others, [&](const IValue& other) { return is_equal_value(value, other); });
  }
  const c10::List<std::int64_t> list = value.toIntList();
  const auto is_as_long = [&](const IValue& other) {
    return other.isIntList() && other.toIntList().size() == list.size();
  };
  if (!std::ranges::all_of(others, is_as_long)) return false;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!add(i, list[i], [i](const IValue& other) { return static_cast<std::int64_t>(other.toIntList()[i]); })) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool is_equal_value(const IValue& left, const IValue& right) {
  if (left.isInt() && right.isInt()) return left.toInt() == right.toInt();
  if (left.isBool() && right.isBool()) return left.toBool() == right.toBool();
  if (left.isDouble() && right.isDouble()) return left.toDouble() == right.toDouble();
  return left.isNone() && right.isNone();
}

std::optional<std::vector<std::vector<SizeInCall>>> sizes_in_views(std::span<const ViewOf* const> views,
                                                                   std::vector<at::Tensor> shown, ir::SizeFit& fit) {
  std::vector<std::vector<SizeInCall>> result;
  for (const ViewOf* view : views) {
    std::vector<const ViewOf*> others;
    for (at::Tensor& each : shown) {
      const auto& other = trace_impl(each)->state()->view;
      const bool is_alike = other && other->is_data == view->is_data && other->op == view->op &&
                            other->result == view->result && other->arguments.size() == view->arguments.size();
      if (!is_alike) return std::nullopt;
      others.push_back(&*other);
    }
    std::vector<SizeInCall>& sizes = result.emplace_back();
    for (std::size_t i = 1; i < view->arguments.size(); ++i) {
      std::vector<IValue> values;
      for (const ViewOf* other : others) values.push_back(other->arguments[i]);
      if (!add_sizes(i, view->arguments[i], values, fit, sizes)) return std::nullopt;
    }
    for (std::size_t i = 0; i < shown.size(); ++i) shown[i] = at::Tensor(others[i]->parent);
  }
  return result;
}

}  // namespace thunder::tracer
