#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace thunder::check {

inline at::Tensor real(std::vector<std::int64_t> sizes, at::ScalarType dtype = at::kFloat) {
  return at::randn(sizes).to(dtype);
}

}  // namespace thunder::check
