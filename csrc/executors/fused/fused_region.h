#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "fusion/block_results.h"
#include "ir/trace.h"
#include "runtime/program.h"

namespace thunder::executors {

/// The tensors that a fused symbol reads and gives for certain sizes, and its operations one by one, for inputs that no
/// kernel takes. Thread-safe.
class FusedRegion {
 public:
  struct Tensor {
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    at::ScalarType dtype;
    at::Device device;
  };

  /// `region` has one symbol, the fused one, and no symbols of sizes.
  explicit FusedRegion(ir::Trace region);

  [[nodiscard]] const ir::Trace& region() const { return region_; }
  [[nodiscard]] const std::vector<Tensor>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<Tensor>& outputs() const { return outputs_; }
  [[nodiscard]] const std::vector<fusion::CopyTarget>& copies() const { return copies_; }
  /// The device of all its tensors; nullopt: it has none.
  [[nodiscard]] std::optional<at::Device> device() const {
    const std::vector<Tensor>& tensors = outputs_.empty() ? inputs_ : outputs_;
    return tensors.empty() ? std::nullopt : std::make_optional(tensors[0].device);
  }

  /// Whether the inputs are plain tensors of the traced dtypes, sizes and devices. Results that are copied to an input
  /// lie there as was traced.
  [[nodiscard]] bool fits(const c10::IValue* inputs) const;
  /// Whether results for inputs of these strides lie as they would in eager.
  [[nodiscard]] bool keeps_order(const c10::IValue* inputs) const;
  /// Takes the inputs from the end of the stack and puts the results there.
  void run_operations(std::vector<c10::IValue>& stack) const;

 private:
  ir::Trace region_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
  std::vector<fusion::CopyTarget> copies_;
  mutable std::once_flag operations_once_;
  mutable runtime::Program operations_;
};

/// Whether a tensor has these strides, but for those of dimensions of size one, which mean nothing.
[[nodiscard]] bool has_strides(const at::Tensor& tensor, const std::vector<std::int64_t>& expected);

}  // namespace thunder::executors
