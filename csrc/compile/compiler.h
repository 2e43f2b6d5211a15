#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compile/executor_list.h"
#include "compile/trace_transform.h"
#include "ir/trace.h"
#include "passes/pass.h"
#include "passes/recomputation.h"
#include "runtime/versions.h"
#include "transforms/grad.h"

namespace thunder::compile {

struct Options {
  Executors executors = default_executors();
  std::vector<std::shared_ptr<const TraceTransform>> transforms{};  ///< in the order in which they are applied
  std::vector<std::string> disabled_passes{};  ///< besides those in the environment's THUNDER_DISABLE_PASSES
  bool background = true;
  bool fuse = true;     ///< false: results are, to the bit, those of the operations one by one
  bool verify = false;  ///< after each pass; debug builds always do
  passes::Recompute rematerialize = passes::Recompute::kFree;  ///< what backwards compute instead of having it saved
  bool prepack_weights = false;  ///< the user promises that weights move their versions when they change
};

/// Whether executors or transforms of the user's take part.
[[nodiscard]] bool has_extensions(const Options& options);

/// A recorded computation, compiled: what dispatch runs on a hit, with its traces for the curious.
class Compiled {
 public:
  virtual ~Compiled() = default;

  /// Runs the computation on real tensors (one for each input of the recorded trace) and returns one tensor for each
  /// tensor output. When the trace needs a gradient, the outputs hang in PyTorch's autograd graph by one node.
  /// Needs no GIL. Throws what ATen throws.
  virtual std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, const runtime::Versions& versions) const = 0;
  [[nodiscard]] std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) const {
    return run(std::move(inputs), runtime::Versions());
  }

  /// The trace that was compiled.
  [[nodiscard]] virtual ir::Trace recorded() const = 0;
  /// Traces from recorded to final, one for each step.
  [[nodiscard]] virtual std::vector<ir::Trace> forward_traces() const = 0;
  [[nodiscard]] virtual std::vector<ir::Trace> backward_traces() const = 0;
  /// Seconds for each step by name.
  [[nodiscard]] virtual std::map<std::string, double> timings() const = 0;
  /// What each pass did to each trace, in the order in which they ran.
  [[nodiscard]] virtual std::vector<passes::PassStatistics> pass_statistics() const = 0;
  /// Which rule served each operation that was differentiated.
  [[nodiscard]] virtual std::vector<transforms::ServedOperation> rules() const = 0;
  /// Blocks until what compiles in the background is in place.
  virtual void wait() const = 0;
};

/// Compiles a recorded computation whose outputs are tensors (ValueIds). Whether a backward is built follows from the
/// `requires_grad` of its values.
[[nodiscard]] std::shared_ptr<Compiled> compile(const ir::Trace& recorded, const Options& options);

/// What `Options` may name, for messages and tests.
[[nodiscard]] std::vector<std::string> pass_names();

}  // namespace thunder::compile
