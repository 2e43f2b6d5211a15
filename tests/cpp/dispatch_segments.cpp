#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "check.h"
#include "dispatch/segments/segments.h"
#include "ir/verifier.h"
#include "tracer/data_dependence.h"
#include "tracer/fallback.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"

using thunder::dispatch::cut_at_checks;
using thunder::dispatch::Segment;
using thunder::ir::Trace;
using thunder::tracer::Recorder;

namespace {

/// tanh(x), then a look at its sum, then a product with the sum as a constant.
Trace look(double value) {
  thunder::tracer::init_tracer();
  Recorder recorder(
      thunder::ir::Trace(thunder::ir::TraceKind::kComputation, std::make_shared<thunder::ir::TraceContext>()));
  const at::Tensor x = recorder.add_input(at::full({2, 3}, value), "x");
  at::Tensor result;
  {
    const thunder::tracer::RecordTop recording(recorder);
    const at::Tensor y = x.tanh();
    result = y * y.sum().item();
  }
  const thunder::ir::ValueId output = recorder.value_of(result);
  return recorder.finish({thunder::ir::Argument(output)});
}

std::vector<std::string> names_of(const Trace& trace) {
  std::vector<std::string> names;
  for (const auto& symbol : trace.symbols) names.push_back(symbol.op->name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST(trace_is_cut_behind_each_check) {
  const Trace trace = look(1.0);
  const auto segments = cut_at_checks(trace);
  CHECK(segments.has_value());
  CHECK_EQ(segments->size(), 2u);
  CHECK_EQ(names_of(segments->at(0).trace), (Names{"aten::tanh", "aten::sum", "prims::item"}));
  CHECK_EQ(names_of(segments->at(1).trace), (Names{"aten::mul"}));
  CHECK_EQ(segments->at(1).trace.name(), "computation_1");
  CHECK(segments->at(0).observation.check == thunder::tracer::check_number_operator());
  CHECK(segments->at(1).observation.check == nullptr);
  for (const Segment& segment : *segments) thunder::ir::verify(segment.trace, "test");
}

TEST(segment_hands_on_what_later_ones_need) {
  const auto segments = cut_at_checks(look(1.0));
  // tanh for the product, and the number that is observed.
  CHECK_EQ(segments->at(0).outputs.size(), 2u);
  CHECK_EQ(segments->at(1).inputs.size(), 1u);
  CHECK(segments->at(1).inputs[0] == segments->at(0).outputs[0]);
}

TEST(segments_before_different_numbers_are_the_same) {
  const auto left = cut_at_checks(look(1.0));
  const auto right = cut_at_checks(look(2.0));
  CHECK(same_segment(left->at(0), right->at(0)));
  CHECK(!same_segment(left->at(1), right->at(1)));
}

TEST(segment_gives_more_outputs_when_asked) {
  const Segment segment = cut_at_checks(look(1.0))->at(0);
  const std::vector<thunder::ir::ValueId> sum = {segment.recorded.at(2)};
  const Segment more = with_outputs(segment, sum);
  CHECK_EQ(more.outputs.size(), segment.outputs.size() + 1);
  CHECK_EQ(more.trace.outputs.size(), more.outputs.size());
  CHECK(same_segment(segment, more));
  CHECK_EQ(with_outputs(more, sum).outputs.size(), more.outputs.size());
}

TEST(operation_whose_shape_is_checked_stands_alone) {
  thunder::tracer::init_tracer();
  Recorder recorder(
      thunder::ir::Trace(thunder::ir::TraceKind::kComputation, std::make_shared<thunder::ir::TraceContext>()));
  const at::Tensor x = recorder.add_input(at::tensor({1.0, -1.0}), "x");
  at::Tensor result;
  {
    const thunder::tracer::RecordTop recording(recorder);
    result = x.sin().masked_select(x > 0) * 2;
  }
  const thunder::ir::ValueId output = recorder.value_of(result);
  const auto segments = cut_at_checks(recorder.finish({thunder::ir::Argument(output)}));
  CHECK_EQ(segments->size(), 3u);
  CHECK(segments->at(1).is_bare);
  CHECK_EQ(names_of(segments->at(1).trace), (Names{"aten::masked_select"}));
}
