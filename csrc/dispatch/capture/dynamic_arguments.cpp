#include "dispatch/capture/dynamic_arguments.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "base/error.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/python_ref.h"
#include "ir/location.h"

namespace thunder::dispatch {
namespace {

using Kind = ir::StrideRule::Kind;

/// Tensors that lie deeper in containers have numbers.
constexpr int kDepth = 3;

/// Returns the marks of `thunder.mark_dynamic` and `mark_static`: a dict of `(least, most)`, or None, by dimension.
py::Ref marks_of(PyObject* tensor) {
  const py::Ref attributes = interpreter::instance_dict(tensor);
  PyObject* marks = attributes ? PyDict_GetItemString(attributes.get(), "_thunder_sizes") : nullptr;
  return marks != nullptr && PyDict_Check(marks) ? py::Ref::share(marks) : py::Ref();
}

}  // namespace

bool is_parameter(PyObject* tensor) {
  const py::Ref type = loaded_function("torch.nn.parameter", "Parameter");
  return type && PyObject_IsInstance(tensor, type.get()) == 1;
}

DynamicArguments::DynamicArguments(const interpreter::CallArguments& arguments, DynamicSizes which,
                                   const PinnedSizes& pinned, const SizeHistory::Inputs& changing)
    : which_(which), pinned_(pinned), changing_(changing) {
  if (which == DynamicSizes::kNone) return;
  for (const auto& [path, input] : changing_) add_changing(path, input);
  const auto names =
      arguments.names == nullptr ? std::size_t{0} : static_cast<std::size_t>(PyTuple_GET_SIZE(arguments.names));
  for (std::size_t i = 0; i < arguments.positional + names; ++i) add(arguments.values[i], 0);
}

void DynamicArguments::add_changing(const std::string& path, const SizeHistory::Changing& input) {
  ir::StrideRule rule = input.rule;
  SizeHistory::Sizes strides = input.strides, before = input.strides_before;
  strides.resize(rule.steps.size());
  before.resize(rule.steps.size());
  for (std::size_t i = 0; i < rule.steps.size(); ++i) {
    const bool is_pinned = rule.steps[i].kind == Kind::kFree && pinned_.contains({strides[i], before[i], true});
    if (is_pinned) rule.steps[i] = {Kind::kFixed, strides[i]};
  }
  std::optional<std::vector<Bounds>> bounds = bounds_by(input, rule);
  for (std::size_t i = 0; !bounds && i < rule.steps.size(); ++i) {
    if (rule.steps[i].kind != Kind::kFixed) continue;
    strides[i] = before[i] = rule.steps[i].number;
    if (pinned_.contains({strides[i], before[i], true})) return;
    rule.steps[i] = {Kind::kFree};
  }
  if (!bounds) bounds.emplace(input.sizes.size());
  auto& symbols = by_path_[path];
  for (std::size_t i = 0; i < input.sizes.size(); ++i) {
    symbols.emplace_back();
    if (input.before[i] == -1 || pinned_.contains({input.sizes[i], input.before[i]})) continue;
    symbols.back() = symbol_for({input.sizes[i], input.before[i]}, (*bounds)[i]);
    symbols_[*symbols.back()].is_first |= i == 0 && !is_number_path(path);
  }
  add_strides(rule, input.sizes, symbols, strides, before);
  rules_by_path_.emplace(path, std::move(rule));
}

void DynamicArguments::add_strides(ir::StrideRule& rule, const SizeHistory::Sizes& sizes,
                                   const std::vector<std::optional<std::uint32_t>>& symbols,
                                   const SizeHistory::Sizes& strides, const SizeHistory::Sizes& before) {
  if (!rule.has_free()) return;
  const auto symbol_dim = [&](std::uint32_t symbol) { return ir::Dim::symbol(symbol, symbols_[symbol].traced); };
  ir::Dims dims;
  for (std::size_t i = 0; i < sizes.size(); ++i) dims.push_back(symbols[i] ? symbol_dim(*symbols[i]) : sizes[i]);
  for (std::size_t i = 0; i < rule.steps.size(); ++i) {
    if (rule.steps[i].kind == Kind::kFree) rule.steps[i].number = symbol_for({strides[i], before[i], true}, Bounds());
  }
  for (ir::Condition& layout : ir::conditions_of(rule, dims, symbol_dim)) {
    if (std::ranges::find(layouts_, layout) == layouts_.end()) layouts_.push_back(std::move(layout));
  }
}

void DynamicArguments::add(PyObject* object, int depth) {
  if (is_tensor(object)) return add_tensor(object);
  if (depth == kDepth) return;
  if (PyTuple_Check(object) || PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      add(PySequence_Fast_GET_ITEM(object, i), depth + 1);
    }
  } else if (PyDict_Check(object)) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(object, &position, &key, &value)) add(value, depth + 1);
  }
}

void DynamicArguments::refuse_size(std::int64_t dim, std::int64_t size, const Bounds& bounds) {
  const std::string most = bounds.most == 0 ? "" : " and at most " + std::to_string(bounds.most);
  throw UserError(ErrorKind::kValue, "thunder.mark_dynamic: dimension " + std::to_string(dim) +
                                         ": expected a size of at least " + std::to_string(bounds.least) + most +
                                         ", as the tensor is marked, got " + std::to_string(size));
}

void DynamicArguments::add_tensor(PyObject* object) {
  const at::Tensor& tensor = unpack_tensor(object);
  const py::Ref marks = marks_of(object);
  if (!marks && (which_ == DynamicSizes::kMarked || is_parameter(object))) return;
  const bool is_plain = tensor.layout() == at::kStrided && !tensor.is_conj() && !tensor.is_neg() &&
                        !tensor.key_set().has(c10::DispatchKey::Python);
  auto rule = is_plain ? ir::rule_of(tensor.sizes(), tensor.strides()) : std::nullopt;
  if (!rule || by_tensor_.contains(object)) return;
  std::vector<std::optional<std::uint32_t>> symbols(static_cast<std::size_t>(tensor.dim()));
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    const std::int64_t size = tensor.size(i);
    const auto bounds = bounds_of(marks.get(), i);
    const bool is_within = bounds && size >= bounds->least && (bounds->most == 0 || size <= bounds->most);
    if (bounds && bounds->is_given && !is_within) refuse_size(i, size, *bounds);
    if (!is_within || pinned_.contains({size, size})) continue;
    const std::uint32_t symbol = symbol_for({size, size}, *bounds);
    symbols_[symbol].is_first |= i == 0;
    symbols[static_cast<std::size_t>(i)] = symbol;
  }
  const SizeHistory::Sizes strides = tensor.strides().vec();
  for (std::size_t i = 0; which_ == DynamicSizes::kAll && i < strides.size(); ++i) {
    const bool is_pinned = pinned_.contains({strides[i], strides[i], true});
    if (rule->steps[i].is_wider() && !is_pinned) rule->steps[i] = {Kind::kFree};
  }
  add_strides(*rule, tensor.sizes().vec(), symbols, strides, strides);
  by_tensor_.emplace(object, std::move(symbols));
  rules_.emplace(object, *rule);
}

std::optional<std::vector<DynamicArguments::Bounds>> DynamicArguments::bounds_by(const SizeHistory::Changing& input,
                                                                                 const ir::StrideRule& rule) {
  std::vector<Bounds> bounds(input.sizes.size());
  std::int64_t others = 1;
  std::vector<std::size_t> changes;
  bool is_any_wider = false;
  for (const std::size_t dim : std::views::reverse(rule.order)) {
    const ir::StrideRule::Step& step = rule.steps[dim];
    if (step.kind == Kind::kFixed) {
      if (is_any_wider || changes.size() > 1) return std::nullopt;
      if (!changes.empty()) bounds[changes[0]].most = (step.number - 1) / others;
    }
    is_any_wider = is_any_wider || step.is_wider();
    if (step.kind == Kind::kExpanded) continue;
    if (input.before[dim] == -1) {
      others *= input.sizes[dim];
    } else {
      changes.push_back(dim);
    }
  }
  return bounds;
}

std::optional<DynamicArguments::Bounds> DynamicArguments::bounds_of(PyObject* marks, std::int64_t dim) const {
  const py::Ref key = py::Ref::steal(PyLong_FromLongLong(dim));
  PyObject* mark = marks == nullptr ? nullptr : PyDict_GetItem(marks, key.get());
  if (mark == nullptr) return which_ == DynamicSizes::kAll ? std::make_optional(Bounds()) : std::nullopt;
  if (!PyTuple_Check(mark) || PyTuple_GET_SIZE(mark) != 2) return std::nullopt;
  Bounds bounds;
  PyObject* least = PyTuple_GET_ITEM(mark, 0);
  PyObject* most = PyTuple_GET_ITEM(mark, 1);
  bounds.is_given = least != Py_None || most != Py_None;
  if (least != Py_None) bounds.least = std::max(bounds.least, static_cast<std::int64_t>(PyLong_AsLongLong(least)));
  if (most != Py_None) bounds.most = PyLong_AsLongLong(most);
  return bounds;
}

std::uint32_t DynamicArguments::symbol_for(const SymbolSizes& sizes, const Bounds& bounds) {
  auto known = symbols_.begin();
  const auto is_it = [&] { return values_of(static_cast<std::uint32_t>(known - symbols_.begin())) == sizes; };
  while (known != symbols_.end() && !is_it()) ++known;
  if (known == symbols_.end()) {
    known = symbols_.insert(known, {sizes.now, bounds.least, bounds.most, false, sizes.is_stride});
    before_.push_back(sizes.before);
  }
  known->least = std::max(known->least, bounds.least);
  if (bounds.most != 0) known->most = known->most == 0 ? bounds.most : std::min(known->most, bounds.most);
  return static_cast<std::uint32_t>(known - symbols_.begin());
}

void DynamicArguments::find(PyObject* object, const std::string& path) {
  const auto found = by_path_.find(path);
  if (found == by_path_.end()) return;
  const at::Tensor& tensor = unpack_tensor(object);
  const SizeHistory::Changing& input = changing_.at(path);
  const ir::StrideRule& found_rule = rules_by_path_.at(path);
  // A symbol has the value that it was traced with.
  const auto is_as_traced = [&](std::size_t i) {
    const ir::StrideRule::Step& step = found_rule.steps[i];
    return step.kind != Kind::kFree || tensor.stride(i) == symbols_[static_cast<std::size_t>(step.number)].traced;
  };
  if (tensor.sizes() != c10::IntArrayRef(input.sizes)) return;
  if (!std::ranges::all_of(std::views::iota(std::size_t{0}, found_rule.steps.size()), is_as_traced)) return;
  const ir::StrideRule& rule = rules_.emplace(object, found_rule).first->second;
  if (!(rule == found_rule) || !ir::follows(rule, tensor.sizes(), tensor.strides())) return;
  const py::Ref marks = marks_of(object);
  auto& symbols = by_tensor_[object];
  symbols.resize(found->second.size());
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    const py::Ref key = py::Ref::steal(PyLong_FromSize_t(i));
    const bool is_marked = marks && PyDict_GetItem(marks.get(), key.get()) != nullptr;
    if (!symbols[i] && !is_marked) symbols[i] = found->second[i];
  }
}

bool DynamicArguments::is_symbol(const std::string& path, std::int64_t number) const {
  const auto found = by_path_.find(path);
  return found != by_path_.end() && found->second.size() == 1 && found->second[0] &&
         changing_.at(path).sizes == SizeHistory::Sizes{number};
}

std::uint32_t DynamicArguments::add_number(PyObject* tensor, const std::string& path) {
  const std::uint32_t symbol = *by_path_.at(path)[0];
  by_tensor_[tensor] = {symbol, std::nullopt};
  rules_[tensor] = ir::StrideRule{{0, 1}, std::vector<ir::StrideRule::Step>(2)};
  return symbol;
}

std::vector<std::optional<std::uint32_t>> DynamicArguments::symbols_of(PyObject* tensor) const {
  const auto found = by_tensor_.find(tensor);
  return found == by_tensor_.end() ? std::vector<std::optional<std::uint32_t>>() : found->second;
}

ir::StrideRule DynamicArguments::rule_of(PyObject* tensor) const {
  const auto found = rules_.find(tensor);
  return found == rules_.end() ? ir::StrideRule() : found->second;
}

std::vector<std::optional<std::uint32_t>> DynamicArguments::symbols_of(const std::string& path,
                                                                       const SizeHistory::Sizes& sizes) const {
  const auto found = by_path_.find(path);
  const bool is_there = found != by_path_.end() && changing_.at(path).sizes == sizes;
  return is_there ? found->second : std::vector<std::optional<std::uint32_t>>();
}

const std::vector<std::string>& DataSizePaths::of(std::span<const tracer::DataSized> data_sized) {
  for (const tracer::DataSized& each : data_sized.subspan(paths_.size())) {
    std::string& path = paths_.emplace_back();
    if (each.sizes.empty()) continue;
    path = each.op.substr(each.op.rfind(':') + 1) + ir::describe_line(each.location, " in ");
    if (const int before = counts_[path]++; before > 0) path += ", number " + std::to_string(before + 1);
  }
  return paths_;
}

}  // namespace thunder::dispatch
