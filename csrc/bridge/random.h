#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace thunder::bridge {

/// The states of PyTorch's default generators: of the CPU, and of each GPU that this process uses. Generators of a CUDA
/// graph that is being captured are left out, as each replay draws from other states.
class RandomState {
 public:
  [[nodiscard]] static RandomState now();
  void restore() const;

 private:
  void add(const at::Generator& generator);

  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// A new generator, as `torch.Generator(device)` gives.
[[nodiscard]] at::Generator make_generator(c10::Device device);

}  // namespace thunder::bridge
