#include "runtime/differentiable_program.h"

#include <algorithm>

namespace thunder::runtime {

std::shared_ptr<const BackwardProgram> BackwardPrograms::find(std::span<const at::Tensor> cotangents) const {
  const auto is_for = [&](const BackwardProgram& backward) {
    return std::ranges::equal(backward.cotangents, cotangents, {}, {}, [](const at::Tensor& t) { return t.defined(); });
  };
  std::shared_ptr<const BackwardProgram> backward = last_.load(std::memory_order_acquire);
  if (backward != nullptr && is_for(*backward)) return backward;
  CotangentSet set;
  for (const at::Tensor& cotangent : cotangents) set.push_back(cotangent.defined());
  backward = make_(set);
  last_.store(backward, std::memory_order_release);
  return backward;
}

std::vector<bool> BackwardPrograms::find_differentiable(std::span<const at::Tensor> cotangents) const {
  if (find_differentiable_ == nullptr) return {};
  CotangentSet come, differentiable;
  for (const at::Tensor& cotangent : cotangents) {
    come.push_back(cotangent.defined());
    differentiable.push_back(cotangent.defined() && cotangent.requires_grad());
  }
  return find_differentiable_(come, differentiable);
}

}  // namespace thunder::runtime
