#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

namespace thunder::tracer {

/// While alive, holds the contents that a composite's own code is given in the place of trace tensors, and what it
/// computes of them alone: it reads them, so that they are no values of the trace.
class KnownContents {
 public:
  KnownContents();
  ~KnownContents();
  KnownContents(const KnownContents&) = delete;
  KnownContents& operator=(const KnownContents&) = delete;

  void add(at::Tensor tensor) { tensors_.push_back(std::move(tensor)); }

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor>* previous_;
};

/// Runs an operation on known contents alone, for more of them. False: it reads something else.
[[nodiscard]] bool call_on_known_contents(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace thunder::tracer
