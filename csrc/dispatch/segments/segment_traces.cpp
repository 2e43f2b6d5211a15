#include "dispatch/segments/segment_traces.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "base/error.h"

namespace thunder::dispatch {
namespace {

/// Shows the segments of a path as one computation, for its traces, timings and statistics. It cannot be run.
class Segments final : public compile::Compiled {
 public:
  Segments(const ir::Trace& recorded, const SegmentPath& path) : recorded_(recorded) {
    for (const SegmentPath::Step& step : path.steps) segments_.push_back(step.shared);
  }

  std::vector<at::Tensor> run(std::vector<at::Tensor> /*inputs*/, const runtime::Versions& /*versions*/,
                              const std::shared_ptr<runtime::GraphRunner>& /*graphs*/) const override {
    throw InternalError("dispatch", "the segments of a program that looks at data are not run as one");
  }
  [[nodiscard]] bool is_for(std::span<const at::Tensor> /*inputs*/) const override { return true; }
  [[nodiscard]] ir::Trace recorded() const override { return recorded_; }
  [[nodiscard]] std::vector<ir::Trace> forward_traces() const override {
    std::vector<ir::Trace> traces{recorded_};
    for_each_segment([&](const CompiledSegment& compiled) {
      if (compiled.program == nullptr) {
        if (!compiled.segment.trace.symbols.empty()) traces.push_back(compiled.segment.trace);
        return;
      }
      for (ir::Trace& trace : compiled.program->forward_traces()) traces.push_back(std::move(trace));
    });
    return traces;
  }
  [[nodiscard]] std::vector<ir::Trace> backward_traces() const override {
    std::vector<ir::Trace> traces;
    for_each_program([&](const compile::Compiled& program) {
      std::vector<ir::Trace> own = program.backward_traces();
      traces.insert(traces.begin(), own.begin(), own.end());
    });
    return traces;
  }
  [[nodiscard]] std::map<std::string, double> timings() const override {
    std::map<std::string, double> seconds;
    for_each_program([&](const compile::Compiled& program) {
      for (const auto& [name, value] : program.timings()) seconds[name] += value;
    });
    return seconds;
  }
  [[nodiscard]] std::vector<passes::PassStatistics> pass_statistics() const override {
    std::vector<passes::PassStatistics> statistics;
    for_each_program([&](const compile::Compiled& program) {
      std::ranges::copy(program.pass_statistics(), std::back_inserter(statistics));
    });
    return statistics;
  }
  [[nodiscard]] std::vector<transforms::ServedOperation> rules() const override {
    std::vector<transforms::ServedOperation> served;
    for_each_program(
        [&](const compile::Compiled& program) { std::ranges::copy(program.rules(), std::back_inserter(served)); });
    return served;
  }
  void wait() const override {
    for_each_program([](const compile::Compiled& program) { program.wait(); });
  }
  [[nodiscard]] bool is_settled() const override {
    bool settled = true;
    for_each_program([&](const compile::Compiled& program) { settled = settled && program.is_settled(); });
    return settled;
  }
  [[nodiscard]] const compile::GraphFacts& graph_facts() const override { return graph_facts_; }
  [[nodiscard]] const compile::GraphFacts* training_facts() const override { return nullptr; }

 private:
  template <typename Visit>
  void for_each_segment(Visit&& visit) const {
    for (const auto& shared : segments_) visit(*shared->get());
  }
  template <typename Visit>
  void for_each_program(Visit&& visit) const {
    for_each_segment([&](const CompiledSegment& compiled) {
      if (compiled.program != nullptr) visit(*compiled.program);
    });
  }

  ir::Trace recorded_;
  const compile::GraphFacts graph_facts_{.obstacle = "it looks at data"};
  std::vector<std::shared_ptr<SharedSegment>> segments_;
};

}  // namespace

std::shared_ptr<compile::Compiled> traces_of(const ir::Trace& recorded, const SegmentPath& path) {
  return std::make_shared<Segments>(recorded, path);
}

}  // namespace thunder::dispatch
