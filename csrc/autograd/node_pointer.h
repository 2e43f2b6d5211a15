#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace thunder::autograd {

/// std::shared_ptr up to torch 2.11, c10::intrusive_ptr after.
using NodePointer = decltype(torch::autograd::Edge::function);

/// A node that is deleted as PyTorch deletes its own: a long chain of nodes one after another, not each inside of the
/// last.
template <typename NodeType, typename... Arguments>
auto make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<torch::autograd::Node>>) {
    return std::shared_ptr<NodeType>(new NodeType(std::forward<Arguments>(arguments)...),
                                     [](NodeType* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<NodeType>(std::forward<Arguments>(arguments)...);
  }
}

}  // namespace thunder::autograd
