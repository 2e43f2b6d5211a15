#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace thunder::transforms {

/// What a random operation does under `vmap`.
enum class Randomness : std::uint8_t {
  kError,      ///< refused
  kSame,       ///< the same numbers for all examples
  kDifferent,  ///< numbers of its own for each example
};

/// While alive, operations of this thread on batched tensors of this layer go through PyTorch's batching rules. What
/// those call comes out below, where it runs or is recorded.
class VmapLayer {
 public:
  VmapLayer(std::int64_t batch_size, Randomness randomness);
  ~VmapLayer();
  VmapLayer(const VmapLayer&) = delete;
  VmapLayer& operator=(const VmapLayer&) = delete;

  /// One example of `tensor`, whose examples lie along `dim`; `tensor` itself, the same for all, without `dim`.
  [[nodiscard]] at::Tensor enter(const at::Tensor& tensor, std::optional<std::int64_t> dim) const;
  [[nodiscard]] bool is_batched(const at::Tensor& tensor) const;
  /// Back: the examples along `dim`, repeated when they are all the same.
  [[nodiscard]] at::Tensor leave(const at::Tensor& tensor, std::int64_t dim) const;

 private:
  std::int64_t batch_size_;
  std::int64_t level_;
};

/// While alive, operations of this thread on dual tensors of this layer compute tangents, by PyTorch's forward AD.
class JvpLayer {
 public:
  JvpLayer();
  ~JvpLayer();
  JvpLayer(const JvpLayer&) = delete;
  JvpLayer& operator=(const JvpLayer&) = delete;

  struct Dual {
    at::Tensor primal;
    at::Tensor tangent;  ///< undefined: zero
  };
  [[nodiscard]] at::Tensor enter(const at::Tensor& primal, const at::Tensor& tangent) const;
  [[nodiscard]] Dual leave(const at::Tensor& dual) const;

 private:
  [[nodiscard]] at::Tensor unwrap(const at::Tensor& tensor) const;

  std::int64_t level_;
  bool previous_forward_mode_;
  std::uint64_t dual_level_ = 0;
  bool owns_dual_level_;
};

/// The tensor that `tensor` stands for below all layers. Refuses one that differs between examples of a batch.
[[nodiscard]] at::Tensor below_layers(const at::Tensor& tensor);

/// Whether `tensor` is one example of a batch, in the innermost layer.
[[nodiscard]] bool is_batched(const at::Tensor& tensor);

/// What a tensor that outlived its `grad` or `jvp` level stands for; any other tensor as it is.
[[nodiscard]] at::Tensor unwrap_dead(const at::Tensor& tensor);

}  // namespace thunder::transforms
