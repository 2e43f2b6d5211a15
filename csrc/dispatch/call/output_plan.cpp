#include "dispatch/call/output_plan.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "autograd/backward_graph.h"
#include "base/error.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/python_tensor.h"
#include "passes/symbol_facts.h"
#include "tracer/operators.h"
#include "tracer/python_function.h"
#include "tracer/trace_node.h"
#include "tracer/views.h"
#include "transforms/functorch_layer.h"

namespace thunder::dispatch {
namespace {

using tracer::trace_impl;

[[noreturn]] void refuse(std::string_view message) {
  throw UserError(ErrorKind::kNotImplemented, std::string("thunder.jit: ").append(message));
}

bool is_restride(const tracer::ViewOf& view) { return view.op.operator_name().name == "thunder::restride"; }

at::Tensor root_of_view(const at::Tensor& tensor) {
  at::Tensor root = tensor;
  while (const tracer::ViewOf* view = view_of(root)) root = at::Tensor(view->parent);
  return root;
}

bool is_leaf_of_gradients(const at::Tensor& tensor) { return tensor.requires_grad() && tensor.is_leaf(); }

bool has_several_tensors(std::span<const c10::IValue> arguments) {
  return std::ranges::any_of(arguments.subspan(1), [](const c10::IValue& value) {
    return value.isTensor() || value.isTensorList() || value.isOptionalTensorList();
  });
}

/// Outside of inference mode, a tensor that was made in it may not be told to require grad.
class ModeOfTensor {
 public:
  explicit ModeOfTensor(const at::Tensor& tensor) {
    if (tensor.is_inference()) mode_.emplace();
  }

 private:
  std::optional<c10::InferenceMode> mode_;
};

void require_grad(const at::Tensor& tensor) {
  const ModeOfTensor mode(tensor);
  tensor.set_requires_grad(true);
}

}  // namespace

const tracer::ViewOf* view_of(const at::Tensor& tensor) {
  const tracer::TraceState& state = *trace_impl(tensor)->state();
  const auto& maker = tensor.grad_fn();
  const bool is_of_function = state.adopted != nullptr || (maker != nullptr && tracer::is_foreign(maker.get()));
  return is_of_function ? nullptr : tracer::autograd_view(state);
}

OutputView::OutputView(const at::Tensor& view, const at::Tensor& root, bool is_input) {
  bool is_cut = false;  // between the view and the root, for autograd
  for (at::Tensor tensor = view; !tensor.is_same(root); tensor = at::Tensor(view_of(tensor)->parent)) {
    // Behind a `detach()` nobody can tell that what it shows is a leaf.
    const bool shows_leaf = !is_cut && !tensor.is_same(view) && is_leaf_of_gradients(tensor);
    is_cut |= tracer::is_detached(*view_of(tensor));
    if (view_of(tensor)->is_data && version_ == 0 && !view.is_inference()) version_ = view._version();
    if (shows_leaf) {
      refuse("a view is returned or stored of a leaf that is made inside, and is not; return a clone");
    }
    add(*view_of(tensor));
  }
  is_leaf_ = is_leaf_of_gradients(view);
  if (!is_leaf_ && view.requires_grad() && (is_cut || !root.requires_grad())) {
    refuse("a view is returned or stored whose gradients are not those of the tensor that it shows; return a clone");
  }
  if (!is_input && std::ranges::any_of(steps_, &Step::by_position)) offset_ = root.storage_offset();
}

void OutputView::add(const tracer::ViewOf& view) {
  if (is_restride(view)) {  // the tracer's own
    places_.push_back(std::nullopt);
    return;
  }
  if (has_several_tensors(view.arguments)) {
    refuse("a view that is made of several tensors is returned or stored; return a clone");
  }
  Step step{.result = view.result, .grad_mode = view.grad_mode, .inference_mode = view.inference_mode};
  if (!view.is_data) {
    step.op = view.op;
    step.by_position = tracer::has_fact(view.op, tracer::Fact::kReadsStrides);
    step.arguments = view.arguments;
    step.arguments[0] = c10::IValue();
  }
  places_.push_back(steps_.size());
  steps_.push_back(std::move(step));
}

void OutputView::set_sizes(std::vector<std::vector<tracer::SizeInCall>> sizes) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (places_[i]) steps_[*places_[i]].sizes = std::move(sizes[i]);
  }
}

void OutputView::add_symbols(std::vector<std::uint32_t>& symbols) const {
  for (const Step& step : steps_) {
    for (const tracer::SizeInCall& size : step.sizes) ir::add_symbols(size.dim, symbols);
  }
}

std::vector<std::uint32_t> OutputPlan::symbols() const {
  std::vector<std::uint32_t> symbols;
  for (const View& view : views) view.how.add_symbols(symbols);
  for (const Source& source : sources) {
    if (source.size) ir::add_symbols(*source.size, symbols);
  }
  return symbols;
}

namespace {

void put_sizes(std::span<const tracer::SizeInCall> sizes, ir::SymbolValues symbols, torch::jit::Stack& arguments) {
  for (const tracer::SizeInCall& size : sizes) {
    const std::int64_t number = ir::evaluate(size.dim, symbols);
    if (!size.element) {
      arguments[size.argument] = number;
      continue;
    }
    c10::List<std::int64_t> list = arguments[size.argument].toIntList().copy();
    list.set(*size.element, number);
    arguments[size.argument] = std::move(list);
  }
}

}  // namespace

at::Tensor OutputView::run(const Step& step, const at::Tensor& shown, ir::SymbolValues symbols) {
  if (!step.op) return shown.variable_data();
  // It sets grad mode, too.
  std::optional<c10::InferenceMode> inference_mode;
  if (step.inference_mode != c10::InferenceMode::is_enabled()) inference_mode.emplace(step.inference_mode);
  const c10::AutoGradMode grad_mode(step.grad_mode);
  torch::jit::Stack stack = step.arguments;
  put_sizes(step.sizes, symbols, stack);
  stack[0] = shown;
  step.op->callBoxed(stack);
  return stack[0].isTensor() ? stack[0].toTensor() : stack[0].toTensorVector().at(step.result);
}

at::Tensor OutputView::show(const at::Tensor& root, ir::SymbolValues symbols) const {
  at::Tensor shown = root;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const bool is_moved =
        offset_ && *offset_ != root.storage_offset() && step->by_position && step->arguments.back().isInt();
    if (!is_moved) {
      shown = run(*step, shown, symbols);
      continue;
    }
    Step moved = *step;
    moved.arguments.back() = moved.arguments.back().toInt() - *offset_ + root.storage_offset();
    shown = run(moved, shown, symbols);
  }
  if (version_ != 0) {
    c10::VariableVersion counter = shown.unsafeGetTensorImpl()->version_counter();
    counter.set_version(version_);
  }
  if (is_leaf_) require_grad(shown);
  return shown;
}

OutputPlanner::OutputPlanner(tracer::Recorder& recorder, tracer::SizeShadows* shadows)
    : recorder_(recorder), shadows_(shadows) {
  for (std::size_t i = 0; i < recorder.tensors.real_inputs().size(); ++i) {
    inputs_.emplace(recorder.tensors.inputs()[i].unsafeGetTensorImpl(), static_cast<std::uint32_t>(i));
  }
}

void OutputPlanner::add_number(ir::ValueId value) {
  plan_.sources.push_back({.index = static_cast<std::uint32_t>(computed_.size())});
  computed_.push_back({.number = value});
}

std::uint32_t OutputPlanner::computed(const at::Tensor& tensor) {
  const auto [place, is_new] =
      known_.try_emplace(tensor.unsafeGetTensorImpl(), static_cast<std::uint32_t>(computed_.size()));
  if (is_new) computed_.push_back({.tensor = tensor});
  return place->second;
}

OutputPlanner::Root OutputPlanner::find_root(const at::Tensor& tensor) {
  at::Tensor root = tensor;
  for (;;) {
    const auto input = inputs_.find(root.unsafeGetTensorImpl());
    if (input != inputs_.end()) return {root, true, input->second};
    const tracer::ViewOf* view = view_of(root);
    if (view == nullptr && recorder_.memory.was_input(root)) {
      refuse(
          "a view is returned or stored of an input that is turned in place afterwards (t_, squeeze_); return a clone");
    }
    if (view == nullptr) return {root, false, computed(root)};
    root = at::Tensor(view->parent);
  }
}

void OutputPlanner::require_as_outside(const Root& root) const {
  const at::Tensor& real = recorder_.tensors.real_inputs()[root.index];
  const bool changes = real.requires_grad() != root.tensor.requires_grad();
  const bool is_written = tracer::is_written(root.tensor);  // it may be by what requires grad
  if (changes && (real.requires_grad() || !is_written)) {
    refuse("a view of an input is returned on which requires_grad_() is called; return a clone");
  }
  if (real.sizes() != root.tensor.sizes()) refuse("a view of an input that is resized is returned; return a clone");
}

void OutputPlanner::note_view(PyObject* object) {
  const at::Tensor tensor = transforms::unwrap_dead(unpack_tensor(object));
  if (trace_impl(tensor) == nullptr || !tensor.requires_grad() || tensor.is_leaf()) return;
  const at::Tensor root = root_of_view(tensor);
  if (root.is_same(tensor)) return;
  const compile::FeedSource source{recorder_.value_of(tensor), recorder_.value_of(root)};
  values_of_views_.emplace(tensor.unsafeGetTensorImpl(), source);
}

void OutputPlanner::add_tensor(PyObject* object) {
  const at::Tensor& given = unpack_tensor(object);
  const at::Tensor tensor = transforms::unwrap_dead(given);
  // Who has this one, as a pullback of torch.func does, may ask for the gradient of others that left with it.
  if (!given.is_same(tensor) && given.requires_grad() && given.is_leaf()) {
    refuse("a tensor by which torch.func differentiates is returned or stored; return a clone");
  }
  if (is_functorch_wrapper(tensor)) {
    refuse(
        "expected tensors of the program's own in what it returns or stores, got one that left a function under vmap, "
        "grad or jvp in another way than by being returned");
  }
  if (trace_impl(tensor) == nullptr) refuse("a tensor that this trace does not know is returned or stored");
  OutputPlan::Source source;
  if (tensor.retains_grad() && !tensor.is_leaf()) {
    refuse("retain_grad() on a tensor that is returned or stored; call it on the result");
  }
  recorder_.writes.require_open_history(tensor);
  if (is_leaf_of_gradients(tensor)) leaves_.push_back(tensor.unsafeGetTensorImpl());
  const Root root = find_root(tensor);
  source.is_input = root.is_input;
  source.index = root.index;
  if (!tensor.is_same(root.tensor)) {
    if (root.is_input) require_as_outside(root);
    const tracer::LazyView lazy = tracer::lazy_view(tensor);
    const at::Tensor real = recorder_.tensors.real_behind(lazy.root);
    if (lazy.is_part_of_conjugate(real.defined() && real.is_conj())) {
      refuse("the real or imaginary part of a conjugate is returned or stored; return a clone");
    }
    std::size_t depth = 0;
    for (at::Tensor shown = tensor; !shown.is_same(root.tensor); ++depth) shown = view_of(shown)->parent;
    viewed_.push_back({tensor, root, plan_.sources.size(), depth});
    if (!root.is_input) computed_[root.index].is_viewed = true;
  }
  if (Py_TYPE(object) != reinterpret_cast<PyTypeObject*>(plain_tensor_type())) {
    source.type = py::Ref::share(reinterpret_cast<PyObject*>(Py_TYPE(object)));
    source.is_parameter = keeps_class_to_itself(source.type.get());
    if (source.is_parameter && !tensor.is_leaf()) {
      refuse("a tensor of a subclass that is no leaf is returned or stored");
    }
  }
  plan_.sources.push_back(std::move(source));
}

/// Views of one `.data` have one version counter: it is made once, though nobody returns it.
void OutputPlanner::add_shared_data() {
  std::vector<std::pair<Viewed, int>> data;  // with the number of views that are made of it
  for (const Viewed& each : viewed_) {
    Viewed shown{.tensor = each.tensor, .root = each.root, .depth = each.depth};
    for (; !shown.tensor.is_same(each.root.tensor); shown.tensor = at::Tensor(view_of(shown.tensor)->parent)) {
      const auto is_this = [&](const auto& known) { return known.first.tensor.is_same(shown.tensor); };
      const auto known = std::ranges::find_if(data, is_this);
      if (known != data.end()) {
        ++known->second;
      } else if (view_of(shown.tensor)->is_data) {
        data.emplace_back(shown, 1);
      }
      --shown.depth;
    }
  }
  for (const auto& [shown, count] : data) {
    const auto is_this = [&](const Viewed& each) { return each.tensor.is_same(shown.tensor); };
    if (count > 1 && std::ranges::none_of(viewed_, is_this)) viewed_.push_back(shown);
  }
}

/// A view of a view that is returned, too, is made of that, as its gradient goes there.
void OutputPlanner::plan_views() {
  add_shared_data();
  std::ranges::stable_sort(viewed_, {}, &Viewed::depth);
  std::unordered_map<const c10::TensorImpl*, std::int32_t> planned;
  for (const Viewed& each : viewed_) {
    at::Tensor base = view_of(each.tensor)->parent;
    while (!base.is_same(each.root.tensor) && !planned.contains(base.unsafeGetTensorImpl())) {
      base = at::Tensor(view_of(base)->parent);
    }
    const auto found = planned.find(base.unsafeGetTensorImpl());
    const auto view = static_cast<std::int32_t>(plan_.views.size());
    plan_.views.push_back({.how = OutputView(each.tensor, base, each.root.is_input),
                           .is_input = each.root.is_input,
                           .index = each.root.index,
                           .base = found == planned.end() ? OutputPlan::kNoView : found->second});
    plan_sizes(each.tensor, base, plan_.views.back().how);
    if (each.source != kNoSource) plan_.sources[each.source].view = view;
    planned.emplace(each.tensor.unsafeGetTensorImpl(), view);
  }
}

void OutputPlanner::plan_sizes(const at::Tensor& tensor, const at::Tensor& base, OutputView& view) {
  if (shadows_ == nullptr) return;
  std::vector<const tracer::ViewOf*> steps;
  for (at::Tensor shown = tensor; !shown.is_same(base); shown = at::Tensor(view_of(shown)->parent)) {
    steps.push_back(view_of(shown));
  }
  if (auto sizes = shadows_->sizes_in_views(tensor, steps)) {
    view.set_sizes(*std::move(sizes));
  } else if (!shadows_->is_traced_again()) {
    shadows_->pin_all();
  }
}

compile::Feeds OutputPlanner::find_feeds(const ir::Trace& trace, std::span<const compile::FeedSource> sources) const {
  if (sources.empty()) return {};
  std::vector<ir::ValueId> values;
  for (std::uint32_t i = 0; i < computed_.size(); ++i) {
    const auto* id = trace.outputs[i].get<ir::ValueId>();
    values.push_back(id == nullptr || first_with_value_of(trace, i) != i ? ir::kNoValue : *id);
  }
  return compile::find_feeds(trace, sources, values);
}

std::uint32_t OutputPlanner::first_with_value_of(const ir::Trace& trace, std::uint32_t result) {
  const auto* value = trace.outputs[result].get<ir::ValueId>();
  if (value == nullptr) return result;
  std::uint32_t first = 0;
  while (trace.outputs[first] != trace.outputs[result]) ++first;
  return first;
}

compile::Feeds OutputPlanner::find_written_feeds(const ir::Trace& trace) const {
  std::vector<compile::FeedSource> sources;
  for (std::size_t i = computed_.size(); i < trace.outputs.size(); ++i) {
    const auto* id = trace.outputs[i].get<ir::ValueId>();
    sources.push_back({id == nullptr ? ir::kNoValue : *id});
  }
  return find_feeds(trace, sources);
}

compile::Feeds OutputPlanner::find_view_feeds(const ir::Trace& trace) const {
  std::vector<compile::FeedSource> sources;
  std::vector<std::uint32_t> views;
  for (std::uint32_t i = 0; i < viewed_.size(); ++i) {
    const auto found = values_of_views_.find(viewed_[i].tensor.unsafeGetTensorImpl());
    if (found == values_of_views_.end()) continue;
    sources.push_back(found->second);
    views.push_back(i);
  }
  compile::Feeds feeds = find_feeds(trace, sources);
  for (auto& feed : feeds) feed.first = views[feed.first];
  return feeds;
}

/// A result that is fed gets a node of its own for the check of that, which a backward from another one goes around.
compile::Feeds OutputPlanner::find_result_feeds(const ir::Trace& trace) const {
  std::vector<std::uint32_t> fed;
  for (const compile::Feeds* feeds : {&plan_.feeds, &plan_.written_feeds}) {
    for (const auto& feed : *feeds) fed.push_back(feed.second);
  }
  std::ranges::sort(fed);
  fed.erase(std::ranges::unique(fed).begin(), fed.end());
  std::vector<compile::FeedSource> sources;
  for (const std::uint32_t result : fed) sources.push_back({*trace.outputs[result].get<ir::ValueId>()});
  compile::Feeds feeds = find_feeds(trace, sources);
  for (auto& feed : feeds) feed.first = fed[feed.first];
  std::erase_if(feeds, [](const auto& feed) { return feed.first == feed.second; });
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    if (feeds.empty() || !tracer::stands_alone(*symbol.op)) continue;
    passes::for_each_result(symbol, [&](ir::ValueId made) {
      const auto is_made_here = [&](const auto& feed) { return trace.outputs[feed.first] == ir::Argument(made); };
      if (std::ranges::any_of(feeds, is_made_here)) {
        refuse(
            "a view is returned or stored together with a result that is computed from it and has a hook, or a "
            "backward in Python, and with another one that is computed from that; return a clone of the view");
      }
    });
  }
  return feeds;
}

/// Refuses outputs that share memory without being views of one another, if gradients go through one of them: autograd
/// would not know that a write to one is a write to the other.
void OutputPlanner::require_separate() const {
  std::unordered_map<const c10::StorageImpl*, bool> require_grad;
  const auto add = [&](const at::Tensor& tensor) {
    const auto [place, is_new] = require_grad.emplace(tensor.storage().unsafeGetStorageImpl(), tensor.requires_grad());
    if (is_new) return true;
    place->second |= tensor.requires_grad();
    return !place->second;
  };
  for (std::size_t i = 0; i < inputs_.size(); ++i) add(recorder_.tensors.inputs()[i]);
  for (const Computed& each : computed_) {
    if (!each.tensor.defined()) continue;
    const tracer::TraceState& state = *trace_impl(each.tensor)->state();
    const bool is_own = state.view && !state.view->is_turned && tracer::autograd_view(state) == nullptr;
    if (!is_own && !add(each.tensor)) {
      refuse("tensors that share memory and are no views of one another are returned or stored; return clones");
    }
  }
}

/// A leaf that the caller gets would have a gradient after a backward that comes after the call.
void OutputPlanner::require_no_gradient_inside() const {
  if (leaves_.empty()) return;
  const auto is_returned = [&](torch::autograd::Node& node) {
    const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(&node);
    return leaf != nullptr && std::ranges::find(leaves_, leaf->variable.unsafeGetTensorImpl()) != leaves_.end();
  };
  const auto require_no_leaf_behind = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.requires_grad() || tensor.is_leaf()) return;
    if (autograd::any_node_behind(torch::autograd::impl::gradient_edge(tensor), is_returned)) {
      refuse("a leaf is made, and returned or stored together with what was computed from it; make it outside");
    }
  };
  for (const Computed& each : computed_) require_no_leaf_behind(each.tensor);
  for (const Viewed& each : viewed_) require_no_leaf_behind(each.tensor);
}

namespace {

/// The value that a recorder gives for an output, which the call makes views of if it `is_viewed`.
ir::ValueId output_in(tracer::Recorder& recorder, const at::Tensor& tensor, bool is_viewed, bool stays) {
  const ir::ValueId value = is_viewed ? recorder.viewed_output_of(tensor) : recorder.output_of(tensor);
  const ir::TensorType* type = recorder.trace().tensor_type(value);
  const bool has_gradient = tensor.requires_grad() || type == nullptr || !type->requires_grad;
  return stays && has_gradient ? value : recorder.history.without_grad(value);
}

}  // namespace

ir::ValueId OutputPlanner::output_of(const Computed& computed, bool stays) {
  if (shadows_ != nullptr) {
    shadows_->follow_data([&](tracer::Recorder& there, const tracer::SizeShadows::FindTensor& find) {
      static_cast<void>(output_in(there, find(computed.tensor), computed.is_viewed, stays));
      return at::Tensor();
    });
  }
  return output_in(recorder_, computed.tensor, computed.is_viewed, stays);
}

ir::ArgumentList OutputPlanner::outputs() {
  plan_views();
  require_separate();
  require_no_gradient_inside();
  ir::ArgumentList values;
  for (std::uint32_t result = 0; result < computed_.size(); ++result) {
    const Computed& each = computed_[result];
    if (!each.tensor.defined()) {
      plan_.histories.push_back(OutputHistory::kComputed);
      values.emplace_back(each.number);
      continue;
    }
    if (c10::InferenceMode::is_enabled() && !each.tensor.is_inference()) {
      refuse("a tensor is made outside of inference mode, in a call inside of it; enter inference mode inside");
    }
    plan_.histories.push_back(find_history(each.tensor));
    if (raises_in_backward(plan_.histories.back())) note_behind_raising(result);
    values.emplace_back(output_of(each, plan_.histories.back() == OutputHistory::kComputed));
  }
  note_versions();
  return values;
}

OutputHistory OutputPlanner::find_history(const at::Tensor& tensor) const {
  const OutputHistory history = history_of(tensor);
  if (history != OutputHistory::kComputed || !tensor.requires_grad() || overwritten_.empty()) return history;
  const auto is_overwritten = [&](const torch::autograd::Node& node) { return overwritten_.contains(&node); };
  const bool raises = autograd::any_node_behind(torch::autograd::impl::gradient_edge(tensor), is_overwritten);
  return raises ? OutputHistory::kOverwritten : history;
}

void OutputPlanner::note_behind_raising(std::uint32_t result) {
  const auto note_input = [&](torch::autograd::Node& node) {
    if (const auto* outside = dynamic_cast<tracer::OutsideNode*>(&node)) {
      plan_.behind_raising.emplace_back(result, static_cast<std::uint32_t>(outside->input()));
    }
    const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(&node);
    const auto input = leaf == nullptr ? inputs_.end() : inputs_.find(leaf->variable.unsafeGetTensorImpl());
    if (input != inputs_.end()) plan_.behind_raising.emplace_back(result, input->second);
    return false;
  };
  const auto edge = torch::autograd::impl::gradient_edge(computed_[result].tensor);
  static_cast<void>(autograd::any_node_behind(edge, note_input));
}

void OutputPlanner::note_versions() {
  for (const Computed& each : computed_) {
    const bool counts = each.tensor.defined() && !each.tensor.is_inference();
    plan_.versions.outputs.push_back(counts ? static_cast<std::uint32_t>(each.tensor._version()) : 0);
  }
  if (std::ranges::count(plan_.versions.outputs, 0U) == std::ssize(plan_.versions.outputs)) {
    plan_.versions.outputs.clear();
  }
  const std::vector<std::size_t> written = recorder_.memory.written_inputs();
  for (std::uint32_t i = 0; i < inputs_.size(); ++i) {
    const at::Tensor& input = recorder_.tensors.inputs()[i];
    const auto count = static_cast<std::uint32_t>(input.is_inference() ? 0 : input._version());
    const bool is_written = std::ranges::find(written, i) != written.end();
    if (count != 0 || is_written) plan_.versions.inputs.emplace_back(i, count);
  }
}

OutputPlan OutputPlanner::finish(const ir::Trace& trace) {
  plan_.feeds = find_view_feeds(trace);
  plan_.written_feeds = find_written_feeds(trace);
  plan_.result_feeds = find_result_feeds(trace);
  for (OutputPlan::View& view : plan_.views) {
    if (!view.is_input) view.index = first_with_value_of(trace, view.index);
  }
  const auto is_usual = [](OutputHistory history) { return history == OutputHistory::kComputed; };
  if (std::ranges::all_of(plan_.histories, is_usual)) plan_.histories.clear();
  bool is_plain = plan_.sources.size() == computed_.size();
  for (std::size_t i = 0; is_plain && i < plan_.sources.size(); ++i) {
    const OutputPlan::Source& source = plan_.sources[i];
    is_plain =
        !source.is_input && source.index == i && source.view == OutputPlan::kNoView && !source.type && !source.size;
  }
  if (is_plain) plan_.sources.clear();
  return std::move(plan_);
}

PyObject* plain_tensor_type() {
  static PyObject* const type = [] {
    const py::Ref module = py::Ref::steal(py::import_module("torch"));
    return module ? PyObject_GetAttrString(module.get(), "Tensor") : nullptr;
  }();
  return type;
}

bool keeps_class_to_itself(py::Borrowed type) {
  static PyObject* const off = [] {
    const py::Ref module = py::Ref::steal(py::import_module("torch._C"));
    return module ? PyObject_GetAttrString(module.get(), "_disabled_torch_function_impl") : nullptr;
  }();
  const py::Ref hook = py::Ref::steal(PyObject_GetAttrString(type, "__torch_function__"));
  PyErr_Clear();
  return off != nullptr && hook.get() == off;
}

py::Ref as_subclass(py::Borrowed object, py::Borrowed type) {
  const at::Tensor& tensor = unpack_tensor(object);
  PyObject* requires_grad = tensor.requires_grad() ? Py_True : Py_False;
  const ModeOfTensor mode(tensor);
  return py::Ref::steal(PyObject_CallMethod(type, "_make_subclass", "OOO", type, object, requires_grad));
}

}  // namespace thunder::dispatch
