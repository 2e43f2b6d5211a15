#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "compile/compiler.h"
#include "dispatch/call/recorded_graph.h"

namespace thunder::dispatch {

/// Runs a computation without gradients as a CUDA graph: one launch for all of its kernels.
///
/// The first calls run kernel by kernel, and show which inputs lie at the same address each time (parameters, caches)
/// and which do not: these are copied to memory of the graph. Results are copied from it, so that a later call does not
/// change them. What the program writes to is not copied: a graph is for that memory. It is for one stream, too; calls
/// from other streams, and calls under other settings of PyTorch's kernels, run kernel by kernel.
class GraphReplay {
 public:
  /// Null: the options want none, or the facts name an obstacle.
  [[nodiscard]] static std::unique_ptr<GraphReplay> make(const compile::Compiled& computation,
                                                         compile::CudaGraphs wanted);

  /// The results, or nothing where the computation is to run as it is: nothing has been done then. Needs the GIL.
  /// Throws what PyTorch throws.
  [[nodiscard]] std::optional<std::vector<at::Tensor>> run(const compile::Compiled& computation,
                                                           const std::vector<at::Tensor>& inputs,
                                                           const runtime::Versions& versions);
  /// "recorded", or why it is not. Needs the GIL.
  [[nodiscard]] std::string state() const;

 private:
  explicit GraphReplay(compile::CudaGraphs wanted) : wanted_(wanted) {}
  /// Forgets a graph that does not fit.
  void drop();
  void record(const compile::Compiled& computation, const std::vector<at::Tensor>& inputs);
  [[nodiscard]] bool try_record(const compile::Compiled& computation, const std::vector<at::Tensor>& inputs);
  [[nodiscard]] std::vector<at::Tensor> replay(const std::vector<at::Tensor>& inputs,
                                               const runtime::Versions& versions);

  const compile::CudaGraphs wanted_;
  mutable std::mutex mutex_;
  std::string obstacle_;
  InputAddresses addresses_;
  int in_vain_ = 0;  ///< graphs that ran a few times only
  std::optional<RecordedGraph> recorded_;
};

}  // namespace thunder::dispatch
