#pragma once

#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "compile/compiler.h"
#include "interpreter/python/python_ref.h"

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
  /// "recorded", or why it is not.
  [[nodiscard]] std::string state() const;

 private:
  /// Settings by which PyTorch's kernels are chosen when they are launched; the last ones are the order in which back
  /// ends of attention are asked.
  using Settings = std::array<std::int64_t, 17 + at::num_sdp_backends>;
  struct Recorded {
    c10::Stream stream;
    Settings settings;
    py::Ref graph{};                        ///< a `thunder._cuda_graphs.Graph`
    std::vector<at::Tensor> copies{};       ///< by input; undefined: it is read where it lies
    std::vector<const void*> addresses{};   ///< by input
    std::vector<at::Tensor> results{};      ///< in the memory of the graph
    std::vector<std::int64_t> returned{};   ///< by result: the input that it is, or -1
    std::vector<std::uint32_t> versions{};  ///< by input: how far its version counter moves
    int runs = 0;
  };

  explicit GraphReplay(compile::CudaGraphs wanted) : wanted_(wanted) {}
  [[nodiscard]] static Settings settings();
  /// Looks where the inputs of a call lie. Whether it is time to record.
  [[nodiscard]] bool observe(const std::vector<at::Tensor>& inputs, const compile::GraphFacts& facts);
  [[nodiscard]] bool fits(const std::vector<at::Tensor>& inputs) const;
  /// Forgets a graph that does not fit.
  void drop();
  void record(const compile::Compiled& computation, const std::vector<at::Tensor>& inputs);
  [[nodiscard]] bool try_record(const compile::Compiled& computation, const std::vector<at::Tensor>& inputs);
  [[nodiscard]] std::vector<at::Tensor> replay(const std::vector<at::Tensor>& inputs,
                                               const runtime::Versions& versions);

  const compile::CudaGraphs wanted_;
  mutable std::mutex mutex_;
  std::string obstacle_;
  int calls_ = 0;    ///< without a graph, since what the program writes to lies where it does
  int in_vain_ = 0;  ///< graphs that ran a few times only
  std::vector<const void*> last_addresses_;
  std::vector<bool> moves_;  ///< by input: it lay elsewhere in an earlier call
  std::optional<Recorded> recorded_;
};

}  // namespace thunder::dispatch
