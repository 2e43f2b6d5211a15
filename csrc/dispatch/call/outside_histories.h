#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace thunder::dispatch {

/// Inputs from which no gradient may go on to other inputs outside of the trace: a gradient that the program asks for
/// inside does not go past an input.
class OutsideHistories {
 public:
  /// The program goes backward to `from`, which has a history, and asks for the gradient of `to`.
  void add(std::size_t from, std::size_t to) { pairs_.push_back({from, to}); }
  /// Whether none was computed from an input whose gradient is asked for.
  [[nodiscard]] bool match(const std::vector<at::Tensor>& inputs) const;

 private:
  struct Pair {
    std::size_t from;
    std::size_t to;
  };
  std::vector<Pair> pairs_;
};

}  // namespace thunder::dispatch
