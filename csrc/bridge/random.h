#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "ir/trace.h"

namespace thunder::bridge {

/// Where a program's random numbers come from.
struct RandomSources {
  bool any = false;
  std::vector<at::Generator> own;  ///< generators that the program has besides PyTorch's default ones

  void add(const RandomSources& others);
};
/// `may_draw`: whether an operation may draw random numbers (operators/facts.h).
[[nodiscard]] RandomSources random_sources(const ir::Trace& trace, bool (*may_draw)(const ir::Operator& op));

/// The states of PyTorch's default generators, of the CPU and of each GPU that this process uses, and of a program's
/// own. Generators of a CUDA graph that is being captured are left out, as each replay draws from other states.
class RandomState {
 public:
  [[nodiscard]] static RandomState now(const RandomSources& sources = {});
  void restore() const;

 private:
  void add(const at::Generator& generator);

  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// A new generator, as `torch.Generator(device)` gives.
[[nodiscard]] at::Generator make_generator(c10::Device device);

}  // namespace thunder::bridge
