#include "dispatch/segments/segment_walk.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "dispatch/python/gil.h"
#include "dispatch/segments/segment_alone.h"
#include "tracer/data_dependence.h"
#include "tracer/python_function.h"

namespace thunder::dispatch {
namespace {

/// The paths of a tree that a run may still turn out to follow.
class Walker {
 public:
  Walker(std::span<const SegmentPath* const> paths, const LoadInputs& load, bool releases_gil)
      : paths_(paths), load_(load), releases_gil_(releases_gil), alive_(paths.size()) {
    std::iota(alive_.begin(), alive_.end(), std::size_t{0});
  }

  Walk run() {
    if (!follow(alive_.front())) return {};
    for (std::size_t k = 0;; ++k) {
      const auto compiled = path().steps[k].shared->get();
      run_segment(*compiled);
      if (k + 1 == path().steps.size()) break;
      const Observation& observation = compiled->segment.observation;
      if (!keep_those_that_observed(k, observe(observation, values_))) return {-1, {}, {observation.location}};
      release(k);
    }
    moved_->set();
    Walk result;
    result.path = static_cast<std::ptrdiff_t>(followed_);
    for (const ir::Argument& output : path().outputs) {
      const auto* id = output.get<ir::ValueId>();
      result.outputs.push_back(id == nullptr ? at::Tensor() : values_[index_of(*id)]);
    }
    return result;
  }

 private:
  [[nodiscard]] const SegmentPath& path() const { return *paths_[followed_]; }
  [[nodiscard]] bool is_followed_alive() const { return std::ranges::find(alive_, followed_) != alive_.end(); }

  bool follow(std::size_t index) {
    followed_ = index;
    if (values_.size() < path().value_count) values_.resize(path().value_count);
    std::vector<at::Tensor> inputs;
    if (!load_(index, inputs)) return false;
    note_versions(inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) values_[index_of(path().inputs[i])] = std::move(inputs[i]);
    return true;
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

  void run_segment(const CompiledSegment& compiled) {
    const Segment& segment = compiled.segment;
    if (segment.outputs.empty() && compiled.program == nullptr) return;
    std::vector<at::Tensor> inputs;
    inputs.reserve(segment.inputs.size());
    for (const ir::ValueId id : segment.inputs) inputs.push_back(values_[index_of(id)]);
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

  /// Keeps the paths that observed this after step k and go on with the same segment; false when there is none.
  bool keep_those_that_observed(std::size_t k, const Observed& observed) {
    std::erase_if(alive_, [&](std::size_t i) { return paths_[i]->steps[k].observed != observed; });
    if (alive_.empty()) return false;
    const auto next = paths_[is_followed_alive() ? followed_ : alive_.front()]->steps[k + 1].shared;
    std::erase_if(alive_, [&](std::size_t i) { return paths_[i]->steps[k + 1].shared != next; });
    while (!is_followed_alive()) {
      if (follow(alive_.front())) return true;
      alive_.erase(alive_.begin());
      if (alive_.empty()) return false;
    }
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
  std::size_t followed_ = 0;
  std::size_t released_ = 0;
  std::optional<runtime::InputVersions> moved_;  ///< versions of the inputs that the path writes
  std::vector<at::Tensor> values_;               ///< by value of the recorded trace
};

}  // namespace

Walk walk(std::span<const SegmentPath* const> paths, const LoadInputs& load, bool releases_gil) {
  return Walker(paths, load, releases_gil).run();
}

}  // namespace thunder::dispatch
