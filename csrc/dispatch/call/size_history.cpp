#include "dispatch/call/size_history.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace thunder::dispatch {
namespace {

constexpr std::string_view kNumber = "number ";
constexpr std::string_view kValue = "value ";

bool is_of_number(std::string_view path) { return path.starts_with(kNumber) || path.starts_with(kValue); }

}  // namespace

std::string number_path(const std::string& path) { return std::string(kNumber) + path; }
std::string value_path(const std::string& path) { return std::string(kValue) + path; }
bool is_number_path(std::string_view path) { return path.starts_with(kNumber); }

bool SizeHistory::Input::is_number(std::size_t dim, std::int64_t size) const {
  const auto pin = pins.find(dim);
  return size < 2 || (pin != pins.end() && (pin->second.is_final() || size == sizes[dim]));
}

const SizeHistory::Input* SizeHistory::find(const std::string& path, std::size_t dims) const {
  const auto found = inputs_.find(path);
  const bool is_known = found != inputs_.end() && found->second.sizes.size() == dims && !ignored_.contains(path);
  return is_known ? &found->second : nullptr;
}

std::optional<ir::StrideRule> SizeHistory::rule_of(const Input& known, const Shape& shape) {
  if (shape.strides.empty()) return ir::StrideRule();
  if (known.strides.size() != shape.strides.size()) return std::nullopt;
  std::optional<ir::StrideRule> rule = ir::rule_of(shape.sizes, shape.strides, known.sizes, known.strides);
  for (std::size_t i = 0; rule && i < rule->steps.size(); ++i) {
    ir::StrideRule::Step& step = rule->steps[i];
    if (step.is_wider() && known.free_strides.contains(i)) step = {ir::StrideRule::Kind::kFree};
    if (step.kind == ir::StrideRule::Kind::kFree && known.pinned_strides.contains(i)) {
      step = {ir::StrideRule::Kind::kFixed, shape.strides[i]};
    }
  }
  return rule;
}

SizeHistory::Changing SizeHistory::with_numbers(const Input& known, const Shape& shape, ir::StrideRule rule) {
  Changing changing{shape.sizes, Sizes(shape.sizes.size(), -1), std::move(rule)};
  if (!changing.rule.has_free()) return changing;
  changing.strides = shape.strides;
  for (std::size_t i = 0; i < shape.strides.size(); ++i) {
    const bool is_other = known.strides[i] != shape.strides[i];
    changing.strides_before.push_back(is_other ? known.strides[i] : known.strides_before[i]);
  }
  return changing;
}

SizeHistory::Changing SizeHistory::compare(const std::string& path, const Shape& shape) const {
  const Sizes& sizes = shape.sizes;
  const Input* known = find(path, sizes.size());
  if (known == nullptr) return {};
  const Input& input = *known;
  std::optional<ir::StrideRule> rule = rule_of(input, shape);
  if (!rule) return {};
  Changing changing = with_numbers(input, shape, *std::move(rule));
  bool is_any = changing.rule.has_free();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (input.is_number(i, sizes[i])) continue;
    changing.before[i] = input.sizes[i] != sizes[i] ? input.sizes[i] : input.before[i];
    is_any = is_any || changing.before[i] != -1;
  }
  return is_any ? changing : Changing();
}

bool SizeHistory::changes_first(const std::string& path, const Sizes& sizes) const {
  const Input* known = find(path, sizes.size());
  for (std::size_t i = 0; known != nullptr && i < sizes.size(); ++i) {
    if (known->before[i] == -1 && known->sizes[i] != sizes[i] && sizes[i] > 1) return true;
  }
  return false;
}

void SizeHistory::add_changes(Inputs& changing, const Shapes& shapes) {
  if (std::ranges::any_of(shapes, [&](const auto& input) { return changes_first(input.first, input.second.sizes); })) {
    for (auto& [path, input] : inputs_) {
      if (!is_of_number(path)) input.pins.clear();
    }
  }
  for (const auto& [path, now] : shapes) {
    if (changing.contains(path)) continue;
    Changing input = compare(path, now);
    if (!input.sizes.empty()) changing.emplace(path, std::move(input));
  }
}

bool SizeHistory::may_change(const std::string& path, const Seen& seen, std::size_t dim) const {
  const Sizes& sizes = seen.shape.sizes;
  const Input* known = find(path, sizes.size());
  if (known == nullptr || known->pins.contains(dim) || sizes[dim] < 2) return false;
  return known->sizes[dim] == sizes[dim] && (dim == 0 || (seen.has_integers && sizes.size() == 2));
}

void SizeHistory::add_guesses(Inputs& changing, const std::map<std::string, Seen>& seen) const {
  if (!may_guess_) return;
  std::set<std::int64_t> guessed;
  for (const auto& [path, input] : seen) {
    const Sizes& sizes = input.shape.sizes;
    const auto found = changing.find(path);
    if (found == changing.end() || found->second.sizes != sizes) continue;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::int64_t& before = found->second.before[i];
      if (before == -1 && may_change(path, input, i)) before = sizes[i];
      if (before == sizes[i]) guessed.insert(before);
    }
  }
  for (const auto& [path, input] : seen) {
    if (guessed.empty() || changing.contains(path)) continue;
    const Sizes& sizes = input.shape.sizes;
    const Input* known = find(path, sizes.size());
    const std::optional<ir::StrideRule> rule = known == nullptr ? std::nullopt : rule_of(*known, input.shape);
    if (!rule) continue;
    Changing equal = with_numbers(*known, input.shape, *rule);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (guessed.contains(sizes[i]) && may_change(path, input, i)) equal.before[i] = sizes[i];
    }
    if (std::ranges::any_of(equal.before, [](std::int64_t size) { return size != -1; })) changing.emplace(path, equal);
  }
}

bool has_guesses(const SizeHistory::Inputs& changing) {
  return std::ranges::any_of(changing, [](const auto& input) {
    return !std::ranges::equal(input.second.sizes, input.second.before, std::ranges::not_equal_to());
  });
}

void remove_guesses(SizeHistory::Inputs& changing) {
  for (auto& [path, input] : changing) {
    for (std::size_t i = 0; i < input.sizes.size(); ++i) {
      if (input.before[i] == input.sizes[i]) input.before[i] = -1;
    }
  }
}

void SizeHistory::note(const std::string& path, const Shape& shape) {
  const Sizes& sizes = shape.sizes;
  Input& input = inputs_[path];
  if (input.sizes.size() != sizes.size()) {
    input = {sizes, shape.strides, Sizes(sizes.size(), -1), {}, Sizes(sizes.size(), -1)};
    return;
  }
  const std::optional<ir::StrideRule> rule = rule_of(input, shape);
  for (std::size_t i = 0; i < shape.strides.size(); ++i) {
    if (rule && rule->steps[i].kind == ir::StrideRule::Kind::kFree) input.free_strides.insert(i);
    if (input.strides[i] != shape.strides[i]) input.strides_before[i] = input.strides[i];
  }
  input.strides = shape.strides;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (input.sizes[i] != sizes[i]) input.before[i] = input.sizes[i];
  }
  input.sizes = sizes;
}

void SizeHistory::pin(const std::string& path, std::size_t dim, const std::string& line, PinKind kind) {
  Input& input = inputs_[path];
  if (dim >= input.sizes.size()) return;
  Pin& pin = input.pins[dim];
  if (pin.weight == 0) pin.line = line;
  const int weight = kind == PinKind::kFewSizes ? 1 : kFinal / 2;
  pin.weight += path.starts_with(kValue) ? kFinal : weight;
}

void SizeHistory::pin_stride(const std::string& path, std::size_t dim) { inputs_[path].pinned_strides.insert(dim); }

void SizeHistory::unpin(const std::string& path, std::size_t dim) { inputs_[path].pins.erase(dim); }

const std::string* SizeHistory::pin_of(const std::string& path, std::size_t dim) const {
  const auto found = inputs_.find(path);
  if (found == inputs_.end()) return nullptr;
  const auto pin = found->second.pins.find(dim);
  return pin == found->second.pins.end() ? nullptr : &pin->second.line;
}

}  // namespace thunder::dispatch
