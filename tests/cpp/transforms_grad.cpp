#include <ATen/ATen.h>

#include "check.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "tracer/fallback.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"
#include "transforms/grad.h"

namespace {

template <typename Program>
thunder::transforms::ForwardBackward differentiated(std::vector<at::Tensor> inputs, Program program) {
  thunder::tracer::init_tracer();
  thunder::tracer::Recorder recorder(
      thunder::ir::Trace(thunder::ir::TraceKind::kComputation, std::make_shared<thunder::ir::TraceContext>()));
  std::vector<at::Tensor> traced;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    traced.push_back(recorder.add_input(inputs[i], "x" + std::to_string(i)));
  at::Tensor result;
  {
    const thunder::tracer::RecordTop recording(recorder);
    result = program(traced);
  }
  const thunder::ir::ValueId value = recorder.value_of(result);
  const thunder::ir::Trace trace = recorder.finish({thunder::ir::Argument(value)});
  auto pair = thunder::transforms::forward_and_backward(trace);
  pair.forward.outputs = pair.forward.outputs;
  thunder::ir::verify(pair.forward, "forward");
  thunder::ir::verify(pair.backward, "backward");
  return pair;
}

std::vector<std::string> names(const thunder::ir::Trace& trace) {
  std::vector<std::string> result;
  for (const auto& symbol : trace.symbols) result.push_back(symbol.op->name);
  return result;
}

using Names = std::vector<std::string>;

}  // namespace

TEST(mul_saves_both_sides) {
  const auto pair = differentiated({at::randn({3}).requires_grad_(), at::randn({3}).requires_grad_()},
                                   [](auto& x) { return x[0] * x[1]; });
  CHECK_EQ(names(pair.forward), (Names{"aten::mul"}));
  CHECK_EQ(names(pair.backward), (Names{"aten::mul", "aten::mul"}));
  CHECK_EQ(pair.saved.size(), std::size_t{2});
  CHECK_EQ(pair.differentiable_inputs.size(), std::size_t{2});
}

TEST(broadcast_is_reduced) {
  const auto pair =
      differentiated({at::randn({4, 3}), at::randn({3}).requires_grad_()}, [](auto& x) { return x[0] + x[1]; });
  CHECK_EQ(names(pair.backward), (Names{"aten::sum", "aten::reshape"}));
}

TEST(reused_value_accumulates) {
  const auto pair = differentiated({at::randn({3}).requires_grad_()}, [](auto& x) {
    at::Tensor y = x[0].sin();
    return y + y.cos();
  });
  CHECK_EQ(names(pair.backward), (Names{"aten::sin", "aten::neg", "aten::mul", "aten::add", "aten::cos", "aten::mul"}));
}

TEST(detached_branch_has_no_backward) {
  const auto pair =
      differentiated({at::randn({3}).requires_grad_()}, [](auto& x) { return x[0] * x[0].detach().exp(); });
  CHECK_EQ(names(pair.backward), (Names{"aten::mul"}));
}
