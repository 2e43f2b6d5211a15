#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compile/graph_facts.h"
#include "compile/options.h"
#include "ir/trace.h"
#include "passes/pass.h"
#include "runtime/versions.h"
#include "transforms/grad.h"

namespace thunder::compile {

/// A recorded computation, compiled: what dispatch runs on a hit, with its traces for the curious.
class Compiled {
 public:
  virtual ~Compiled() = default;

  /// Runs the computation on real tensors (one for each input of the recorded trace) and returns one tensor for each
  /// tensor output. When the trace needs a gradient, the outputs hang in PyTorch's autograd graph by one node.
  /// Needs no GIL. Throws what ATen throws.
  /// `graphs`: runs programs with gradients where it can; null: nothing does.
  virtual std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, const runtime::Versions& versions,
                                      const std::shared_ptr<runtime::GraphRunner>& graphs) const = 0;
  [[nodiscard]] std::vector<at::Tensor> run(std::vector<at::Tensor> inputs,
                                            const runtime::Versions& versions = {}) const {
    return run(std::move(inputs), versions, nullptr);
  }

  /// Whether it is for inputs of these sizes: only where sizes are symbols it may not be.
  [[nodiscard]] virtual bool is_for(std::span<const at::Tensor> inputs) const = 0;

  /// The trace that was compiled.
  [[nodiscard]] virtual ir::Trace recorded() const = 0;
  /// Traces from recorded to final, one for each step.
  [[nodiscard]] virtual std::vector<ir::Trace> forward_traces() const = 0;
  [[nodiscard]] virtual std::vector<ir::Trace> backward_traces() const = 0;
  /// Seconds for each step by name.
  [[nodiscard]] virtual std::map<std::string, double> timings() const = 0;
  /// The effect of each pass on each trace, in the order in which they ran.
  [[nodiscard]] virtual std::vector<passes::PassStatistics> pass_statistics() const = 0;
  /// Which rule served each operation that was differentiated.
  [[nodiscard]] virtual std::vector<transforms::ServedOperation> rules() const = 0;
  /// Blocks until what compiles in the background is in place.
  virtual void wait() const = 0;
  /// Whether nothing compiles in the background.
  [[nodiscard]] virtual bool is_settled() const = 0;
  /// Whether runs without gradients may be recorded as a CUDA graph.
  [[nodiscard]] virtual const GraphFacts& graph_facts() const = 0;
  /// Whether the forward with gradients may be; null: there is none.
  [[nodiscard]] virtual const GraphFacts* training_facts() const = 0;
};

/// Compiles a recorded computation whose outputs are tensors (ValueIds). Whether a backward is built follows from the
/// `requires_grad` of its values.
[[nodiscard]] std::shared_ptr<Compiled> compile(const ir::Trace& recorded, const Options& options);

/// The names of passes that `Options` may disable, for messages and tests.
[[nodiscard]] std::vector<std::string> pass_names();

}  // namespace thunder::compile
