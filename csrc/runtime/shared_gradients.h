#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace thunder::runtime {

/// The memory of cotangents that somebody besides the backward holds. Constructed before the backward takes them.
class HeldCotangents {
 public:
  explicit HeldCotangents(std::span<const at::Tensor> cotangents);

  /// Copies gradients that lie in such memory, or in that of another gradient: PyTorch makes a gradient that nobody
  /// else holds the leaf's `.grad` as it is, and does not look for views, which have no base here. One that *is* a
  /// cotangent or another gradient stays, as PyTorch counts who holds it.
  void separate(std::span<at::Tensor> gradients) const;

 private:
  [[nodiscard]] bool hold(const at::Tensor& gradient) const;

  struct Held {
    const void* tensor;
    const void* storage;
  };
  std::vector<Held> held_;
};

}  // namespace thunder::runtime
