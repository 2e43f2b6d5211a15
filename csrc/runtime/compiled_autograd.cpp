#include "runtime/compiled_autograd.h"

#include <utility>

namespace thunder::runtime {
namespace {

namespace dynamo = torch::dynamo::autograd;

/// The saved values as they are while a graph is made: proxies of its inputs.
std::vector<c10::IValue> unpack(torch::autograd::Node& node, const SavedInGraph& saved) {
  std::vector<c10::IValue> values;
  values.reserve(saved.variables.size() + saved.plain.size());
  for (const auto& variable : saved.variables) values.emplace_back(variable.unpack(node.getptr()));
  values.insert(values.end(), saved.plain.begin(), saved.plain.end());
  return values;
}

std::vector<c10::TypePtr> types_of(const std::vector<c10::IValue>& values) {
  std::vector<c10::TypePtr> types;
  types.reserve(values.size());
  for (const c10::IValue& value : values) types.push_back(value.isTensor() ? c10::TensorType::get() : value.type());
  return types;
}

}  // namespace

std::vector<at::Tensor> call_in_graph(torch::autograd::Node& node, const SavedInGraph& saved,
                                      const std::vector<at::Tensor>& cotangents, GraphBackward backward,
                                      dynamo::SwapSavedVariables& compiler) {
  compiler.before(saved.variables);
  compiler.before(saved.plain);
  std::vector<bool> needed;
  for (std::size_t i = 0; i < node.num_outputs(); ++i) needed.push_back(node.task_should_compute_output(i));
  std::vector<c10::IValue> values = unpack(node, saved);
  values.insert(values.begin(), dynamo::IValuePacker<std::vector<bool>>::pack(needed));
  const auto run = [backward = std::move(backward)](const std::vector<at::Tensor>& arguments,
                                                    const std::vector<c10::IValue>& packed) {
    return backward(arguments, dynamo::IValuePacker<std::vector<bool>>::unpack(packed[0]),
                    std::vector<c10::IValue>(packed.begin() + 1, packed.end()));
  };
  const auto metadata = dynamo::IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(
      dynamo::get_input_metadata(node.next_edges()));
  // The graph calls what is not traceable, with real tensors.
  const auto& python = *dynamo::getPyCompilerInterface();
  const std::string name = python.bind_function(compiler.get_py_compiler(), node.name(), run, types_of(values),
                                                /*is_custom_function=*/true, /*is_traceable=*/false);
  std::vector<at::Tensor> gradients =
      python.call_function(compiler.get_py_compiler(), "apply_functional", name, cotangents, values, metadata);
  compiler.after(saved.variables);
  compiler.after(saved.plain);
  return gradients;
}

}  // namespace thunder::runtime
