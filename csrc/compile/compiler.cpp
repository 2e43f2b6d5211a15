#include "compile/compiler.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <optional>
#include <utility>

#include "compile/backward_compiler.h"
#include "compile/execution.h"
#include "compile/executor_list.h"
#include "compile/foreign_error.h"
#include "compile/pass_runner.h"
#include "compile/pipeline.h"
#include "compile/saved_values.h"
#include "fusion/partition.h"
#include "runtime/autograd_node.h"
#include "tracer/numbers.h"

namespace thunder::compile {
namespace {

/// The programs that calls run. A later compilation may put better ones in their place.
struct Programs {
  std::shared_ptr<const runtime::Program> plain;
  std::shared_ptr<const runtime::DifferentiableProgram> differentiable;
};

class CompiledTrace final : public Compiled {
 public:
  CompiledTrace(std::shared_ptr<const Compilation> compilation, Programs programs,
                std::shared_ptr<BackwardCompiler> backwards, GraphFacts facts,
                std::optional<GraphFacts> training_facts = std::nullopt)
      : compilation_(std::move(compilation)),
        backwards_(std::move(backwards)),
        graph_facts_(std::move(facts)),
        training_facts_(std::move(training_facts)) {
    programs_.store(std::make_shared<const Programs>(std::move(programs)));
  }

  using Compiled::run;
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, const runtime::Versions& versions,
                              const std::shared_ptr<runtime::GraphRunner>& graphs) const override {
    const std::shared_ptr<const Programs> programs = programs_.load(std::memory_order_acquire);
    if (programs->differentiable != nullptr) {
      if (needs_gradient(*programs->differentiable, inputs)) {
        return runtime::run_with_autograd(programs->differentiable, std::move(inputs), versions, graphs);
      }
      return run_plain(*plain_of_differentiable(), inputs, versions);
    }
    return run_plain(*programs->plain, inputs, versions);
  }

  [[nodiscard]] bool is_for(std::span<const at::Tensor> inputs) const override {
    const std::shared_ptr<const Programs> programs = programs_.load(std::memory_order_acquire);
    return (programs->differentiable != nullptr ? programs->differentiable->forward : *programs->plain).is_for(inputs);
  }

  [[nodiscard]] ir::Trace recorded() const override { return compilation_->forward.history.at(0); }
  [[nodiscard]] std::vector<ir::Trace> forward_traces() const override { return compilation_->forward.history.all(); }
  [[nodiscard]] std::vector<ir::Trace> backward_traces() const override {
    return backwards_ == nullptr ? std::vector<ir::Trace>() : backwards_->traces();
  }

  [[nodiscard]] std::map<std::string, double> timings() const override {
    std::map<std::string, double> seconds;
    for (const auto& step : compilation_->forward.history.statistics) seconds[step.pass] += step.seconds;
    for (const auto& step : backward_statistics()) seconds["backward " + step.pass] += step.seconds;
    return seconds;
  }

  [[nodiscard]] std::vector<passes::PassStatistics> pass_statistics() const override {
    std::vector<passes::PassStatistics> all = compilation_->forward.history.statistics;
    std::ranges::copy(backward_statistics(), std::back_inserter(all));
    return all;
  }

  [[nodiscard]] std::vector<transforms::ServedOperation> rules() const override {
    return compilation_->gradient ? compilation_->gradient->served : std::vector<transforms::ServedOperation>();
  }

  void wait() const override {
    const std::shared_ptr<const Programs> programs = programs_.load(std::memory_order_acquire);
    if (programs->plain != nullptr) programs->plain->wait();
    if (programs->differentiable != nullptr) programs->differentiable->forward.wait();
    if (const auto plain = plain_.load(std::memory_order_acquire)) plain->wait();
    if (backwards_ != nullptr) backwards_->wait();
  }

  [[nodiscard]] bool is_settled() const override {
    const std::shared_ptr<const Programs> programs = programs_.load(std::memory_order_acquire);
    return (programs->differentiable != nullptr ? programs->differentiable->forward : *programs->plain).is_settled();
  }
  [[nodiscard]] const GraphFacts& graph_facts() const override { return graph_facts_; }
  [[nodiscard]] const GraphFacts* training_facts() const override {
    return training_facts_ ? &*training_facts_ : nullptr;
  }

 private:
  [[nodiscard]] std::vector<passes::PassStatistics> backward_statistics() const {
    return backwards_ == nullptr ? std::vector<passes::PassStatistics>() : backwards_->statistics();
  }

  static bool needs_gradient(const runtime::DifferentiableProgram& program, const std::vector<at::Tensor>& inputs) {
    if (!at::GradMode::is_enabled()) return false;
    // Without such inputs, leaves that the program makes are what its results require grad for.
    const auto& differentiable = program.differentiable_inputs;
    return differentiable.empty() ||
           std::ranges::any_of(differentiable, [&](std::uint32_t i) { return inputs[i].requires_grad(); });
  }

  static std::vector<at::Tensor> run_plain(const runtime::Program& program, std::vector<at::Tensor>& inputs,
                                           const runtime::Versions& versions) {
    std::vector<at::Tensor> outputs(program.output_count());
    const runtime::InputVersions input_versions(versions, inputs);
    program.run(std::span(inputs), std::span(outputs));
    input_versions.set();
    runtime::set_output_versions(versions, outputs);
    return outputs;
  }

  /// Made at the first call without gradients of a computation that was recorded with them. Without a lock, as
  /// executors may wait for the GIL meanwhile: of threads that come at once, the first one's stays.
  std::shared_ptr<const runtime::Program> plain_of_differentiable() const {
    auto known = plain_.load(std::memory_order_acquire);
    if (known != nullptr) return known;
    ir::Trace trace = compilation_->forward.history.at(compilation_->computation_index);
    for (const auto& transform : compilation_->transforms) trace = apply_post_optimization(*transform, trace, {});
    if (compilation_->fuses) {
      if (auto fused = run_built_in_fusion_passes(trace, compilation_->executors)) trace = *std::move(fused);
    }
    const auto made =
        std::make_shared<const runtime::Program>(lower_directly(trace, compilation_->executors, compilation_->waits));
    return plain_.compare_exchange_strong(known, made) ? made : known;
  }

  const std::shared_ptr<const Compilation> compilation_;
  const std::shared_ptr<BackwardCompiler> backwards_;  ///< null: nothing is differentiated
  const GraphFacts graph_facts_;
  const std::optional<GraphFacts> training_facts_;
  std::atomic<std::shared_ptr<const Programs>> programs_;
  mutable std::atomic<std::shared_ptr<const runtime::Program>> plain_;
};

/// A number that Python gets is the one that eager would give, to the bit.
bool hands_out_numbers(const ir::Trace& trace) {
  return std::ranges::any_of(trace.outputs, [&](const ir::Argument& output) {
    const auto* id = output.get<ir::ValueId>();
    return id != nullptr && tracer::is_number(trace, *id);
  });
}

/// Code of the user takes part: its errors belong to the call that compiles.
bool runs_python(const Compilation& compilation) {
  return !compilation.transforms.empty() ||
         std::ranges::any_of(compilation.executors, [](const auto* executor) { return executor->replaces != nullptr; });
}

constexpr const char* kExtensions = "executors or transforms of the user take part";

std::shared_ptr<Compiled> make_differentiable(Compilation compilation, const PassRunner& runner, bool has_extensions) {
  auto program = std::make_shared<runtime::DifferentiableProgram>();
  program->forward = std::move(compilation.forward.program);
  TraceHistory& forward = compilation.forward.history;
  describe_boundary(forward.at(compilation.computation_index), forward.last(), *compilation.gradient, *program);
  GraphFacts facts = compile::graph_facts(forward.last(), compilation.gradient->output_count);
  if (has_extensions) facts.obstacle = kExtensions;
  forward.put_away();
  runtime::CotangentSet usual;
  for (const auto& output : program->outputs) {
    const bool is_input = output.kind == runtime::DifferentiableProgram::Output::kInput;
    if (output.takes_cotangent) usual.push_back(!is_input);
  }
  TraceLine backward = std::move(compilation.backward);
  const auto shared = std::make_shared<const Compilation>(std::move(compilation));
  auto backwards = std::make_shared<BackwardCompiler>(shared, std::move(backward), runner, std::move(usual));
  if (runs_python(*shared)) backwards->make_usual();
  program->backwards = std::make_unique<const runtime::BackwardPrograms>(
      [backwards](const runtime::CotangentSet& cotangents) {
        try {
          return backwards->get(cotangents);
        } catch (...) {
          rethrow_foreign();
          throw;
        }
      },
      [backwards](const runtime::CotangentSet& cotangents, const runtime::CotangentSet& differentiable) {
        return backwards->find_differentiable(cotangents, differentiable);
      });
  return std::make_shared<CompiledTrace>(shared, Programs{nullptr, std::move(program)}, std::move(backwards),
                                         GraphFacts{.obstacle = "it was traced with gradients"}, std::move(facts));
}

}  // namespace

bool has_extensions(const Options& options) {
  const auto is_of_user = [](const executors::Executor* executor) { return !is_built_in(*executor); };
  return !options.transforms.empty() || std::ranges::any_of(options.executors, is_of_user);
}

std::shared_ptr<Compiled> compile(const ir::Trace& recorded, const Options& options) {
  const PassRunner runner(options, pass_names());
  Compilation compilation;
  compilation.executors = with_fallback(options.executors);
  if (options.prepack_weights) compilation.executors = with_prepacked_weights(std::move(compilation.executors));
  compilation.transforms = options.transforms;
  const ExecutorScope scope(compilation.executors);
  compilation.rematerialize = options.rematerialize;
  compilation.hands_out_numbers = hands_out_numbers(recorded);
  compilation.fuses = options.fuse && runner.is_enabled(fusion::kFusionPartition) && !compilation.hands_out_numbers;
  compilation.waits = !options.background;
  runner.keep("recorded", recorded, compilation.forward.history);
  run_pipeline(compilation, runner);
  if (compilation.gradient) return make_differentiable(std::move(compilation), runner, has_extensions(options));
  auto program = std::make_shared<const runtime::Program>(std::move(compilation.forward.program));
  GraphFacts facts = compile::graph_facts(compilation.forward.history.last());
  if (has_extensions(options)) facts.obstacle = kExtensions;
  compilation.forward.history.put_away();
  const auto shared = std::make_shared<const Compilation>(std::move(compilation));
  return std::make_shared<CompiledTrace>(shared, Programs{std::move(program), nullptr}, nullptr, std::move(facts));
}

}  // namespace thunder::compile
