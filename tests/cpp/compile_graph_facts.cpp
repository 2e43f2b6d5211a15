// Obstacles to recording a program as a CUDA graph.
#include "check.h"
#include "compile/graph_facts.h"
#include "compile/pass_runner.h"
#include "ir/builder.h"
#include "tracer/fallback.h"

namespace thunder::compile {
namespace {

/// A program of one operation on a matrix on a GPU.
ir::Trace program_of(const char* name, const char* overload, ir::ArgumentList others) {
  tracer::init_tracer();
  ir::Trace trace(ir::TraceKind::kComputation, std::make_shared<ir::TraceContext>());
  const ir::TypePtr type = ir::tensor_type(ir::Dtype::kFloat32, {2, 3}, {ir::DeviceType::kCuda, 0});
  const ir::ValueId x = trace.add_input(type, "x");
  others.insert(others.begin(), x);
  trace.outputs = {ir::add_call(trace, *find_operator(name, overload), std::move(others), type)};
  return trace;
}

}  // namespace

TEST(operations_that_launch_kernels_are_no_obstacle) {
  CHECK(graph_facts(program_of("aten::mul", "Tensor", {2.0})).obstacle.empty());
}

TEST(a_replay_would_leave_tensors_as_they_are) {
  using ir::Dims;
  const auto list = [](std::vector<std::int64_t> sizes) { return ir::ArgumentList(sizes.begin(), sizes.end()); };
  for (const auto& trace : {program_of("aten::as_strided_", "", {list({3, 2}), list({1, 3}), std::int64_t{0}}),
                            program_of("aten::resize_", "", {list({1, 3}), ir::None{}})}) {
    CHECK(graph_facts(trace).obstacle.find("changes what a tensor is") != std::string::npos);
  }
}

TEST(random_numbers_are_an_obstacle) {
  CHECK(!graph_facts(program_of("aten::bernoulli", "", {ir::None{}})).obstacle.empty());
}

}  // namespace thunder::compile
