#include "transforms/vmap.h"

#include <string>
#include <utility>

#include "base/error.h"

namespace thunder::transforms {
namespace {

std::int64_t wrapped(std::int64_t dim, std::int64_t rank, std::size_t output) {
  if (dim < -rank || dim >= rank) {
    throw UserError(ErrorKind::kValue, "vmap: out_dims: expected a dimension from " + std::to_string(-rank) + " to " +
                                           std::to_string(rank - 1) + " for output " + std::to_string(output) +
                                           ", got " + std::to_string(dim));
  }
  return dim < 0 ? dim + rank : dim;
}

at::Tensor leave(const VmapLayer& layer, const at::Tensor& tensor, std::optional<std::int64_t> dim,
                 std::size_t position) {
  if (!tensor.defined()) return tensor;
  if (dim) return layer.leave(tensor, wrapped(*dim, tensor.dim() + 1, position));
  if (layer.is_batched(tensor)) {
    throw UserError(ErrorKind::kValue, "vmap: out_dims: expected a dimension for output " + std::to_string(position) +
                                           ", which differs between examples, got None");
  }
  return tensor;
}

}  // namespace

ir::Trace vmap(const ir::Trace& trace, const RecordedInputs& described, const VmapOptions& options) {
  THUNDER_CHECK(options.in_dims.size() == trace.inputs.size(), "vmap", "one in_dim for each input");
  THUNDER_CHECK(options.out_dims.size() == trace.outputs.size(), "vmap", "one out_dim for each output");
  return record(trace, "vmap", described, [&](const std::vector<at::Tensor>& inputs) {
    const VmapLayer layer(options.batch_size, options.randomness);
    std::vector<at::Tensor> examples;
    for (std::size_t i = 0; i < inputs.size(); ++i) examples.push_back(layer.enter(inputs[i], options.in_dims[i]));
    std::vector<at::Tensor> outputs = replay(trace, examples, GradMode::kAsRecorded);
    for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i] = leave(layer, outputs[i], options.out_dims[i], i);
    return outputs;
  });
}

}  // namespace thunder::transforms
