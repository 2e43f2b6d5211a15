#include "transforms/jvp.h"

#include <vector>

#include "base/error.h"
#include "transforms/functorch_layer.h"

namespace thunder::transforms {

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
    outputs.insert(outputs.end(), tangents.begin(), tangents.end());
    return outputs;
  });
}

}  // namespace thunder::transforms
