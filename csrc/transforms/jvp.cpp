#include "transforms/jvp.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "tracer/recorder.h"
#include "transforms/functorch_layer.h"

namespace thunder::transforms {

namespace {

/// Zeros without memory, as PyTorch's formulas make them, would be results that nobody can read.
at::Tensor in_memory(const at::Tensor& tangent) {
  static const auto kRestride = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("thunder::restride", "")
                                    .typed<at::Tensor(const at::Tensor&, at::IntArrayRef)>();
  tracer::Recorder* recorder = tracer::recorder_on_top();
  if (!tangent.defined() || recorder == nullptr) return tangent;
  const bool may_be_zero = std::ranges::any_of(recorder->trace().symbols, [](const ir::BoundSymbol& symbol) {
    return symbol.op->name == "aten::_efficientzerotensor";
  });
  return may_be_zero ? kRestride.call(tangent, tangent.strides()) : tangent;
}

}  // namespace

ir::Trace jvp(const ir::Trace& trace, const RecordedInputs& described, const std::vector<bool>& has_tangent) {
  const std::size_t count = trace.inputs.size();
  THUNDER_CHECK(has_tangent.size() == count, "jvp", "a tangent or none for each input");
  return record(trace, "jvp", described, [&](const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> tangents;
    {
      const JvpLayer layer;
      std::vector<at::Tensor> duals;
      std::size_t next = count;
      for (std::size_t i = 0; i < count; ++i) {
        duals.push_back(has_tangent[i] ? layer.enter(inputs[i], inputs[next++]) : inputs[i]);
      }
      for (const at::Tensor& output : replay(trace, duals, GradMode::kAsRecorded)) {
        const JvpLayer::Dual dual = layer.leave(output);
        outputs.push_back(dual.primal);
        tangents.push_back(dual.tangent);
      }
    }
    for (const at::Tensor& tangent : tangents) outputs.push_back(in_memory(tangent));
    return outputs;
  });
}

}  // namespace thunder::transforms
