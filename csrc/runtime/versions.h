#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace thunder::runtime {

/// Another tensor object over the same memory and version counter, without a gradient history.
[[nodiscard]] at::Tensor shallow_alias(const at::Tensor& tensor);

/// How often a program writes to its tensors, by the count of eager code: what their version counters show afterwards.
/// A compiled program writes each tensor once, or makes it with what was written.
struct Versions {
  std::vector<std::uint32_t> outputs;                           ///< by position; empty: none was written to
  std::vector<std::pair<std::uint32_t, std::uint32_t>> inputs;  ///< position and count
};

/// Whether a tensor has a version counter: not one of inference mode, also after its data was replaced.
[[nodiscard]] bool counts_writes(const at::Tensor& tensor);
void set_output_versions(const Versions& versions, std::span<const at::Tensor> outputs);

/// The version counters of written inputs, taken before a program runs.
class InputVersions {
 public:
  InputVersions(const Versions& versions, std::span<const at::Tensor> inputs);
  /// After the program has run.
  void set() const;

 private:
  struct Written {
    at::Tensor tensor;
    std::int64_t before;
    std::uint32_t count;
  };
  std::vector<Written> written_;
};

}  // namespace thunder::runtime
