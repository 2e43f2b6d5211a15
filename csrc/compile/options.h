#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compile/executor_list.h"
#include "compile/trace_transform.h"
#include "passes/recomputation.h"

namespace thunder::compile {

/// Which programs without gradients run as CUDA graphs.
enum class CudaGraphs : std::uint8_t {
  kNone,
  kSmall,  ///< those whose results take little memory
  kAll,
};

struct Options {
  Executors executors = default_executors();
  std::vector<std::shared_ptr<const TraceTransform>> transforms{};  ///< in the order in which they are applied
  std::vector<std::string> disabled_passes{};  ///< besides those in the environment's THUNDER_DISABLE_PASSES
  bool background = true;                      ///< false: calls wait for kernels that are compiled in the background
  bool fuse = true;                            ///< false: results are, to the bit, those of the operations one by one
  bool verify = false;                         ///< after each pass; debug builds always do
  passes::Recompute rematerialize = passes::Recompute::kFree;  ///< values that backwards recompute
  CudaGraphs cuda_graphs = CudaGraphs::kSmall;
  bool prepack_weights = false;  ///< the user promises that weights move their versions when they change
};

/// Whether executors or transforms of the user's take part.
[[nodiscard]] bool has_extensions(const Options& options);

}  // namespace thunder::compile
