#include "compile/backward_compiler.h"

#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>
#include <utility>

#include "compile/graph_facts.h"
#include "compile/saved_values.h"
#include "transforms/inner_gradient.h"

namespace thunder::compile {
namespace {

/// The dispatch modes around a call of `backward()` see what runs, not how it is compiled.
class OutsideOfDispatchModes {
 public:
  OutsideOfDispatchModes() : modes_(Modes::get_state()) { Modes::set_state({}); }
  ~OutsideOfDispatchModes() { Modes::set_state(std::move(modes_)); }
  OutsideOfDispatchModes(const OutsideOfDispatchModes&) = delete;
  OutsideOfDispatchModes& operator=(const OutsideOfDispatchModes&) = delete;

 private:
  using Modes = c10::impl::TorchDispatchModeTLS;
  Modes modes_;
};

}  // namespace

BackwardCompiler::BackwardCompiler(std::shared_ptr<const Compilation> compilation, TraceLine backward,
                                   PassRunner runner, runtime::CotangentSet usual)
    : compilation_(std::move(compilation)),
      backward_(std::move(backward)),
      runner_(std::move(runner)),
      usual_(std::move(usual)),
      statistics_(backward_.history.statistics) {
  backward_.history.statistics.clear();
  derived_.add(backward_.history.at(0));
  derived_.shrink();
  backward_.history.put_away();
}

std::vector<bool> BackwardCompiler::find_differentiable(const runtime::CotangentSet& cotangents,
                                                        const runtime::CotangentSet& differentiable) {
  const std::lock_guard<std::mutex> lock(making_);
  const auto [place, is_new] = differentiable_.try_emplace({cotangents, differentiable});
  if (!is_new) return place->second;
  const OutsideOfDispatchModes outside;
  const bool is_for_all = std::ranges::find(cotangents, false) == cotangents.end();
  const ir::Trace backward =
      is_for_all ? derived_.restore(0) : transforms::backward_for(*compilation_->gradient, cotangents);
  std::vector<bool> inputs = differentiable_saved_values();
  for (std::size_t i = 0; i < cotangents.size(); ++i) {
    if (cotangents[i]) inputs.push_back(differentiable[i]);
  }
  return place->second = transforms::differentiable_outputs(backward, inputs);
}

std::vector<bool> BackwardCompiler::differentiable_saved_values() const {
  const transforms::ForwardBackward& gradient = *compilation_->gradient;
  const ir::Trace forward = compilation_->forward.history.at(compilation_->computation_index + 1);
  std::vector<bool> inputs;
  for (const ir::ValueId input : forward.inputs) {
    const ir::TensorType* type = forward.tensor_type(input);
    inputs.push_back(type != nullptr && type->requires_grad);
  }
  std::vector<bool> outputs = transforms::differentiable_outputs(forward, inputs, gradient.requires_grad);
  outputs.erase(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(gradient.output_count));
  return outputs;
}

std::shared_ptr<const runtime::BackwardProgram> BackwardCompiler::get(const runtime::CotangentSet& cotangents) {
  const std::lock_guard<std::mutex> lock(making_);
  std::shared_ptr<const runtime::BackwardProgram>& known = made_[cotangents];
  if (known != nullptr) return known;
  const OutsideOfDispatchModes outside;
  TraceLine line = take_line(cotangents);
  finish_backward(*compilation_, line, runner_);
  auto made = std::make_shared<runtime::BackwardProgram>();
  const auto read_count = static_cast<std::size_t>(std::ranges::count(line.reads, true));
  made->cotangents = cotangents;
  made->reads = std::move(line.reads);
  made->cotangent_layouts = cotangent_layouts(line.history.last(), read_count);
  made->program = std::move(line.program);
  // Gradients are copied from the graph's memory: they may share it.
  made->graph = graph_facts(line.history.last(), /*own_outputs=*/0);
  known = std::move(made);

  const std::lock_guard<std::mutex> reports(reporting_);
  line.history.put_away();
  last_ = std::move(line.history);
  statistics_.insert(statistics_.end(), last_.statistics.begin(), last_.statistics.end());
  return known;
}

TraceLine BackwardCompiler::take_line(const runtime::CotangentSet& cotangents) {
  const bool is_for_all = std::ranges::find(cotangents, false) == cotangents.end();
  // It is gone where an attempt to compile it failed.
  if (!is_for_all || std::exchange(is_taken_, true)) return derive_backward(*compilation_, cotangents, runner_);
  TraceLine line = std::move(backward_);
  line.history.take_out();
  return line;
}

void BackwardCompiler::wait() {
  std::vector<std::shared_ptr<const runtime::BackwardProgram>> made;
  {
    const std::lock_guard<std::mutex> lock(making_);
    for (const auto& [cotangents, backward] : made_) made.push_back(backward);
  }
  for (const auto& backward : made) {
    if (backward != nullptr) backward->program.wait();
  }
}

std::vector<ir::Trace> BackwardCompiler::traces() {
  const auto now = [&] {
    const std::lock_guard<std::mutex> lock(reporting_);
    return last_.all();
  };
  std::vector<ir::Trace> traces = now();
  if (!traces.empty()) return traces;
  make_usual();
  return now();
}

std::vector<passes::PassStatistics> BackwardCompiler::statistics() const {
  const std::lock_guard<std::mutex> lock(reporting_);
  return statistics_;
}

}  // namespace thunder::compile
