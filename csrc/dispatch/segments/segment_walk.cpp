#include "dispatch/segments/segment_walk.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "dispatch/python/gil.h"
#include "dispatch/segments/segment_alone.h"
#include "ir/trace_sizes.h"
#include "ir/value_names.h"
#include "tracer/data_dependence.h"
#include "tracer/python_function.h"

namespace thunder::dispatch {
namespace {

/// Tells for which sizes a segment is that is not for these, as a condition that does not hold.
std::string unmet_by(const ir::Trace& segment, std::span<const at::Tensor> inputs) {
  std::vector<std::int64_t> symbols;
  for (const auto& [symbol, input, dim, factor] : ir::symbol_sources(segment)) {
    if (symbols.size() <= symbol) symbols.resize(symbol + std::size_t{1}, 0);
    symbols[symbol] = inputs[input].size(dim) / factor;
    if (symbols[symbol] < 2) return "sizes are symbols from two on";
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ir::TensorType* type = segment.tensor_type(segment.inputs[i]);
    for (std::size_t d = 0; type != nullptr && d < type->sizes.size(); ++d) {
      // A later segment is for whatever sizes without symbols kernels gave.
      if (segment.segment() > 0 && type->sizes[d].is_concrete()) continue;
      const std::int64_t size = inputs[i].size(static_cast<std::int64_t>(d));
      if (ir::evaluate(type->sizes[d], symbols) == size) continue;
      std::string text;
      ir::ValueNames(segment).append(text, segment.inputs[i]);
      return text + ".shape[" + std::to_string(d) + "], which is " + std::to_string(size) + ", is " +
             ir::to_string(type->sizes[d]);
    }
  }
  for (const ir::Condition& condition : segment.conditions) {
    if (!ir::holds(condition, symbols)) return ir::to_string(condition);
  }
  return "sizes are other ones";
}

/// The paths of a tree that a run may still turn out to follow.
class Walker {
 public:
  Walker(std::span<const SegmentPath* const> paths, const LoadInputs& load, bool releases_gil)
      : paths_(paths), load_(load), releases_gil_(releases_gil), alive_(paths.size()) {
    std::iota(alive_.begin(), alive_.end(), std::size_t{0});
  }

  Walk run() {
    if (!choose()) return {.stop = {{}, unmet_}};
    for (std::size_t k = 0;; ++k) {
      const auto compiled = path().steps[k].shared->get();
      run_segment(*compiled);
      if (k + 1 == path().steps.size()) break;
      const Observation& observation = compiled->segment.observation;
      if (!keep_those_that_observed(observe(observation, values_))) {
        return {.values = std::move(values_), .stop = {observation.location, unmet_}, .untried = std::move(untried_)};
      }
      release(k);
    }
    moved_->set();
    Walk result;
    result.path = static_cast<std::ptrdiff_t>(followed_);
    result.symbols = symbols_->values();
    for (const ir::Argument& output : path().outputs) {
      const auto* id = output.get<ir::ValueId>();
      result.outputs.push_back(id == nullptr ? at::Tensor() : values_[index_of(*id)]);
    }
    return result;
  }

 private:
  [[nodiscard]] const SegmentPath& path() const { return *paths_[followed_]; }
  [[nodiscard]] bool is_followed_alive() const { return std::ranges::find(alive_, followed_) != alive_.end(); }

  /// Goes over to a path, which has all that was run in common with the others that are alive. False: it goes on
  /// otherwise, or is not for this call.
  bool follow(std::size_t index) {
    followed_ = index;
    if (values_.size() < path().value_count) values_.resize(path().value_count);
    std::vector<at::Tensor> inputs;
    if (!load_(index, inputs)) return false;
    note_versions(inputs);
    symbols_.emplace(path().sizes);
    if (!symbols_->bind_inputs(inputs)) return note_unmet();
    for (std::size_t i = 0; i < inputs.size(); ++i) values_[index_of(path().inputs[i])] = std::move(inputs[i]);
    for (std::size_t k = 0; k < observed_.size(); ++k) {
      if (!symbols_->bind(path().steps[k].expected, observed_[k])) return note_unmet();
    }
    return true;
  }

  bool note_unmet() {
    if (!symbols_->unmet().empty()) unmet_ = symbols_->unmet();
    return false;
  }

  /// The segment that writes an input need not have it among its own: it may know all of the memory behind it.
  void note_versions(std::span<const at::Tensor> inputs) {
    runtime::Versions versions;
    for (std::uint32_t i = 0; i < inputs.size(); ++i) {
      const auto found = path().writes.find(path().inputs[i]);
      if (found != path().writes.end()) versions.inputs.emplace_back(i, found->second);
    }
    moved_.emplace(versions, inputs);
  }

  [[nodiscard]] runtime::Versions versions_of(const Segment& segment) const {
    runtime::Versions versions;
    for (const ir::ValueId id : segment.outputs) {
      if (path().versions.empty()) break;
      const auto found = path().versions.find(id);
      versions.outputs.push_back(found == path().versions.end() ? 0 : found->second);
    }
    return versions;
  }

  [[nodiscard]] std::vector<at::Tensor> inputs_of(const Segment& segment) const {
    std::vector<at::Tensor> inputs;
    inputs.reserve(segment.inputs.size());
    for (const ir::ValueId id : segment.inputs) inputs.push_back(values_[index_of(id)]);
    return inputs;
  }

  void run_segment(const CompiledSegment& compiled) {
    const Segment& segment = compiled.segment;
    if (segment.outputs.empty() && compiled.program == nullptr) return;
    std::vector<at::Tensor> inputs = inputs_of(segment);
    const GilRelease release(releases_gil_);
    std::vector<at::Tensor> outputs;
    if (compiled.program != nullptr) {
      outputs = compiled.program->run(std::move(inputs), versions_of(segment));
    } else if (tracer::stands_alone(*segment.trace.symbols.at(0).op)) {
      outputs = run_alone(segment.trace, inputs);
    } else {
      outputs = tracer::run_symbol(segment.trace, segment.trace.symbols.at(0), inputs);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) values_[index_of(segment.outputs[i])] = std::move(outputs[i]);
  }

  /// Whether the program of the followed path's next segment is for these sizes.
  [[nodiscard]] bool can_go_on() {
    const auto next = path().steps[observed_.size()].shared->get();
    if (!next->has_symbols) return true;
    const std::vector<at::Tensor> inputs = inputs_of(next->segment);
    if (next->program->is_for(inputs)) return true;
    unmet_ = unmet_by(next->segment.trace, inputs);
    return false;
  }

  /// Follows the first path that goes on, the one that is followed before others. False: there is none.
  bool choose() {
    if (is_followed_alive() && symbols_) {
      const bool goes_on =
          symbols_->bind(path().steps[observed_.size() - 1].expected, observed_.back()) || note_unmet();
      if (goes_on && can_go_on()) return true;
      std::erase(alive_, followed_);
    }
    while (!alive_.empty()) {
      if (follow(alive_.front()) && can_go_on()) return true;
      alive_.erase(alive_.begin());
    }
    return false;
  }

  /// Keeps the paths that expect this after the step that was run and go on with the same segment; false when there is
  /// none.
  bool keep_those_that_observed(Observed observed) {
    const std::size_t k = observed_.size();
    std::erase_if(alive_, [&](std::size_t i) { return !may_be(paths_[i]->steps[k].expected, observed); });
    observed_.push_back(std::move(observed));
    if (!choose()) return false;
    const auto next = path().steps[k + 1].shared;
    const auto goes_on_otherwise = [&](std::size_t i) { return paths_[i]->steps[k + 1].shared != next; };
    std::ranges::copy_if(alive_, std::back_inserter(untried_), goes_on_otherwise);
    std::erase_if(alive_, goes_on_otherwise);
    return true;
  }

  /// Values that only other paths could need are freed once there is no other path.
  void release(std::size_t k) {
    if (alive_.size() != 1) return;
    for (; released_ <= k; ++released_) {
      for (const ir::ValueId id : path().steps[released_].dying) values_[index_of(id)].reset();
    }
  }

  std::span<const SegmentPath* const> paths_;
  const LoadInputs& load_;
  bool releases_gil_;
  std::vector<std::size_t> alive_;
  std::vector<std::size_t> untried_;  ///< that observed the same so far, and go on with another segment
  std::size_t followed_ = 0;
  std::size_t released_ = 0;
  std::optional<runtime::InputVersions> moved_;  ///< versions of the inputs that the path writes
  std::vector<at::Tensor> values_;               ///< by value of the recorded trace
  std::vector<Observed> observed_;               ///< after each step that was run
  std::optional<SymbolBinding> symbols_;         ///< values that the followed path has
  std::string unmet_;                            ///< the last condition that did not hold
};

}  // namespace

Walk walk(std::span<const SegmentPath* const> paths, const LoadInputs& load, bool releases_gil) {
  return Walker(paths, load, releases_gil).run();
}

}  // namespace thunder::dispatch
