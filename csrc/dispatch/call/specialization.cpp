#include "dispatch/call/specialization.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "bridge/number.h"
#include "bridge/random.h"
#include "dispatch/call/number_input.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/gil.h"
#include "dispatch/python/kept_warnings.h"
#include "dispatch/python/local_part.h"
#include "dispatch/python/python_tensor.h"
#include "runtime/partial_gradients.h"
#include "runtime/value_changed.h"

namespace thunder::dispatch {
namespace {

PyObject* to_number(const c10::Scalar& number) {
  if (number.isBoolean()) return PyBool_FromLong(number.toBool() ? 1 : 0);
  return number.isFloatingPoint() ? PyFloat_FromDouble(number.toDouble()) : PyLong_FromLongLong(number.toLong());
}

}  // namespace

SpecializationCall::SpecializationCall(const Specialization& specialization, const interpreter::GuardTree& tree,
                                       const interpreter::GuardRun& found, std::size_t index)
    : specialization_(specialization), inputs_(specialization.tensors.size()) {
  tree.inputs(found, index, inputs_.data());
  for (const std::uint32_t external : specialization.structure.externals()) {
    kept_.push_back(py::Ref::share(tree.loaded(found, index, external)));
    externals_.push_back(kept_.back().get());
  }
  for (const std::uint32_t returned : specialization.returned_inputs) {
    kept_.push_back(py::Ref::share(inputs_[returned]));
  }
  values_.reserve(inputs_.size() + specialization.strides.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    values_.push_back(input_tensor(inputs_[i], specialization.tensors[i].holds_int()));
  }
  for (const auto& [input, dim] : specialization.strides) {
    values_.push_back(tensor_for_int(values_[input].stride(dim)));
  }
  if (!specialization.symbols.empty()) read_symbols();
}

void SpecializationCall::read_symbols() {
  symbols_.resize(specialization_.symbols.back().symbol + 1);
  for (const ir::SymbolSource& source : specialization_.symbols) {
    symbols_[source.symbol] = values_[source.input].size(source.dim) / source.factor;
  }
}

void SpecializationCall::add_symbols(std::span<const std::int64_t> values) {
  symbols_.resize(std::max(symbols_.size(), values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0) symbols_[i] = values[i];
  }
}

std::vector<at::Tensor> SpecializationCall::take_inputs() {
  with_new_history_ = specialization_.writes.with_new_history(values_);
  written_ = specialization_.writes.written(values_);
  versions_ = sum_of_versions(written_);
  for (const std::uint32_t i : specialization_.statistics) {
    const at::Tensor plain = values_[i].variable_data();
    statistics_.emplace_back(plain, plain.clone());
  }
  for (const std::uint32_t leaf : specialization_.new_leaves) values_[leaf].set_requires_grad(true);
  if (specialization_.taken.empty()) return std::move(values_);
  std::vector<at::Tensor> taken;
  taken.reserve(specialization_.taken.size());
  for (const Specialization::Taken& each : specialization_.taken) {
    taken.push_back(each.held.defined() ? each.held : values_[each.source]);
  }
  return taken;
}

void SpecializationCall::take_back() const {
  for (const std::uint32_t leaf : specialization_.new_leaves) {
    unpack_tensor(inputs_[leaf]).set_requires_grad(false);
  }
  const c10::InferenceMode unseen;
  for (const auto& [statistic, before] : statistics_) statistic.copy_(before);
}

py::Ref SpecializationCall::wrap(at::Tensor computed, bool is_number) {
  return py::Ref::steal(is_number ? to_number(bridge::unwrap_number(computed)) : wrap_tensor(computed));
}

bool SpecializationCall::is_number(std::size_t computed) const {
  return std::ranges::binary_search(specialization_.number_outputs, computed);
}

std::vector<at::Tensor> SpecializationCall::make_views(const std::vector<at::Tensor>& computed) const {
  const OutputPlan& plan = specialization_.plan;
  std::vector<at::Tensor> views(plan.views.size());
  std::vector<bool> is_checked(plan.feeds.empty() && plan.result_feeds.empty() ? 0 : computed.size());
  // A check stands in the history of a result, so that views of that are made after it.
  const auto check = [&](const auto& self, const auto& show, std::uint32_t result) {
    if (is_checked.empty() || is_checked[result]) return;
    is_checked[result] = true;
    for (const auto& [view, fed] : plan.feeds) {
      if (fed == result) runtime::refuse_partial_gradient(show(show, view), computed[result]);
    }
    for (const auto& [from, fed] : plan.result_feeds) {
      if (fed != result) continue;
      self(self, show, from);
      runtime::refuse_partial_gradient(computed[from], computed[result]);
    }
  };
  const auto show = [&](const auto& self, std::size_t i) -> const at::Tensor& {
    if (views[i].defined()) return views[i];
    const OutputPlan::View& view = plan.views[i];
    if (view.base != OutputPlan::kNoView) {
      return views[i] = view.how.show(self(self, static_cast<std::size_t>(view.base)), symbols_);
    }
    if (!view.is_input) check(check, self, view.index);
    return views[i] =
               view.how.show(view.is_input ? unpack_tensor(inputs_[view.index]) : computed[view.index], symbols_);
  };
  for (std::size_t i = 0; i < views.size(); ++i) show(show, i);
  for (const compile::Feeds* feeds : {&plan.feeds, &plan.result_feeds}) {
    for (const auto& feed : *feeds) check(check, show, feed.second);
  }
  return views;
}

namespace {

PyTypeObject* class_of(const OutputPlan::Source& source) { return reinterpret_cast<PyTypeObject*>(source.type.get()); }

}  // namespace

bool SpecializationCall::make_outputs(std::vector<at::Tensor>& computed, References& outputs) const {
  const OutputPlan& plan = specialization_.plan;
  const std::vector<at::Tensor> views = make_views(computed);
  for (const OutputPlan::Source& source : plan.sources) {
    if (source.size) {
      py::Ref number = py::Ref::steal(PyLong_FromLongLong(ir::evaluate(*source.size, symbols_)));
      if (number && source.type) number = py::Ref::steal(PyObject_CallOneArg(source.type.get(), number.get()));
      outputs.push_back(std::move(number));
      if (!outputs.back()) return false;
      continue;
    }
    const at::Tensor& root = source.is_input ? unpack_tensor(inputs_[source.index]) : computed[source.index];
    const bool is_view = source.view != OutputPlan::kNoView;
    outputs.push_back(is_view ? wrap(views[static_cast<std::size_t>(source.view)], false)
                              : wrap(root, !source.is_input && is_number(source.index)));
    if (outputs.back() && source.is_parameter) {
      outputs.back() = as_subclass(outputs.back().get(), source.type.get());
    } else if (outputs.back() && source.type && Py_TYPE(outputs.back().get()) != class_of(source)) {
      if (PyObject_SetAttrString(outputs.back().get(), "__class__", source.type.get()) < 0) return false;
    }
    if (!outputs.back()) return false;
  }
  for (std::size_t i = 0; plan.sources.empty() && i < computed.size(); ++i) {
    outputs.push_back(wrap(std::move(computed[i]), is_number(i)));
    if (!outputs.back()) return false;
  }
  return true;
}

torch::autograd::edge_list SpecializationCall::edges_behind_raising(std::uint32_t computed) const {
  torch::autograd::edge_list edges;
  for (const auto& [result, position] : specialization_.plan.behind_raising) {
    if (result != computed) continue;
    const at::Tensor& input = unpack_tensor(inputs_[position]);
    if (input.requires_grad()) edges.push_back(torch::autograd::impl::gradient_edge(input));
  }
  return edges;
}

PyObject* SpecializationCall::finish(std::vector<at::Tensor> computed) {
  const auto& histories = specialization_.plan.histories;
  std::vector<torch::autograd::edge_list> behind;  // as inputs were before the program wrote to them
  for (std::uint32_t i = 0; i < histories.size(); ++i) behind.push_back(edges_behind_raising(i));
  set_history(with_new_history_, computed);
  for (const auto& [input, output] : specialization_.plan.written_feeds) {
    const at::Tensor& written = with_new_history_[input].tensor;
    if (written.is_view()) runtime::refuse_partial_gradient(written, computed[output]);
  }
  for (std::size_t i = 0; i < histories.size(); ++i) give_history(computed[i], histories[i], std::move(behind[i]));
  References owned;
  if (!make_outputs(computed, owned)) return nullptr;
  Pointers outputs;
  for (const py::Ref& output : owned) outputs.push_back(output.get());
  effects_begun_ = true;
  PyObject* result = specialization_.structure.build({outputs.data(), inputs_.data(), externals_.data()});
  if (specialization_.grad_mode_after != specialization_.state.grad_mode) {
    c10::GradMode::set_enabled(specialization_.grad_mode_after);
  }
  return result;
}

Specialization::Outcome Specialization::run(const interpreter::GuardTree& tree, const interpreter::GuardRun& found,
                                            std::size_t index) const {
  SpecializationCall call(*this, tree, found, index);
  if (!call.memory_matches()) return {Status::kMemoryDiffers, nullptr};
  if (!call.sizes_match()) return {Status::kSizesDiffer, nullptr};
  // A run that stops has drawn numbers; who runs in its place draws them again.
  const auto before = checks_values || random.any ? std::make_optional(bridge::RandomState::now(random)) : std::nullopt;
  try {
    std::vector<at::Tensor> values = call.take_inputs();
    std::vector<at::Tensor> computed;
    KeptWarnings warnings;
    {
      const c10::AutoGradMode history(makes_history());
      auto replayed = graph != nullptr ? graph->run(*computation, values, plan.versions) : std::nullopt;
      const GilRelease release(releases_gil && !replayed);
      computed = replayed ? *std::move(replayed) : computation->run(std::move(values), plan.versions, training_graph);
    }
    warnings.tell();
    return {Status::kDone, call.finish(std::move(computed))};
  } catch (const runtime::ValueChanged&) {
    call.take_back();
    before->restore();
    return {Status::kValueChanged, nullptr};
  } catch (...) {
    set_python_error();
    if (call.may_have_written()) return {Status::kDone, nullptr};
    call.take_back();
    if (before) before->restore();
    return {Status::kRaised, nullptr};
  }
}

}  // namespace thunder::dispatch
