#include <ATen/ATen.h>

#include "base/error.h"
#include "check.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "tracer/fallback.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_tensor.h"

namespace {

using thunder::tracer::Recorder;
using thunder::tracer::RecordTop;

/// Records `program` on trace tensors for `inputs` and returns the names of the operators.
template <typename Program>
std::vector<std::string> recorded(std::vector<at::Tensor> inputs, Program program, bool full_graph = false) {
  thunder::tracer::init_tracer();
  Recorder recorder(
      thunder::ir::Trace(thunder::ir::TraceKind::kComputation, std::make_shared<thunder::ir::TraceContext>()));
  recorder.data.full_graph = full_graph;
  std::vector<at::Tensor> traced;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    traced.push_back(recorder.add_input(inputs[i], "x" + std::to_string(i)));
  at::Tensor result;
  {
    const RecordTop recording(recorder);
    result = program(traced);
  }
  const thunder::ir::ValueId value = recorder.value_of(result);
  const thunder::ir::Trace trace = recorder.finish({thunder::ir::Argument(value)});
  thunder::ir::verify(trace, "test");
  std::vector<std::string> names;
  for (const auto& symbol : trace.symbols) names.push_back(symbol.op->name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST(high_level_operations_stay_whole) {
  const Names names =
      recorded({at::randn({2, 3}), at::randn({4, 3})}, [](auto& x) { return at::gelu(at::linear(x[0], x[1])) + 1; });
  CHECK_EQ(names, (Names{"aten::linear", "aten::gelu", "aten::add"}));
}

TEST(composite_views_become_primitive_ones) {
  const Names names = recorded({at::randn({2, 6})}, [](auto& x) { return x[0].reshape({3, 4}).chunk(2, 1)[1]; });
  CHECK_EQ(names, (Names{"aten::view", "aten::split"}));
}

TEST(identity_records_nothing) {
  const Names names = recorded({at::randn({2, 6})}, [](auto& x) { return x[0].contiguous().to(at::kFloat).tanh(); });
  CHECK_EQ(names, (Names{"aten::tanh"}));
}

TEST(write_becomes_new_value) {
  const Names names = recorded({at::randn({2, 6})}, [](auto& x) {
    at::Tensor y = x[0].clone();
    y.add_(1).mul_(2);
    return y;
  });
  CHECK_EQ(names, (Names{"aten::clone", "aten::add", "aten::mul"}));
}

TEST(write_through_view_reaches_base) {
  const Names names = recorded({at::randn({2, 6})}, [](auto& x) {
    at::Tensor y = x[0].clone();
    y.select(0, 1).zero_();
    return y;
  });
  CHECK_EQ(names, (Names{"aten::clone", "aten::select", "aten::zero", "aten::select_scatter"}));
}

TEST(write_to_input_ends_trace) {
  const Names names = recorded({at::zeros({3})}, [](auto& x) { return x[0].add_(1) * 2; });
  CHECK_EQ(names, (Names{"aten::add", "aten::mul", "aten::copy_"}));
}

TEST(out_variant_writes_target) {
  const Names names = recorded({at::randn({3}), at::randn({3})}, [](auto& x) {
    at::Tensor out = at::empty({3});
    at::add_out(out, x[0], x[1]);
    return out;
  });
  CHECK_EQ(names, (Names{"aten::empty", "aten::add"}));
}

TEST(in_place_view_keeps_its_memory) {
  const Names names = recorded({at::randn({2, 6})}, [](auto& x) {
    at::Tensor y = x[0].clone();
    y.t_().mul_(2);
    return y;
  });
  CHECK_EQ(names, (Names{"aten::clone", "aten::t", "aten::mul", "aten::t"}));
}

TEST(gradient_flag_follows_eager) {
  at::Tensor x = at::randn({3}).requires_grad_();
  recorded({x}, [](auto& traced) {
    CHECK_EQ((traced[0] * 2).requires_grad(), true);
    CHECK_EQ(traced[0].detach().requires_grad(), false);
    CHECK_EQ(traced[0].argmax().requires_grad(), false);
    CHECK_EQ(at::zeros_like(traced[0]).requires_grad(), false);
    return traced[0] * 2;
  });
}

TEST(number_read_is_checked) {
  const Names names = recorded({at::ones({3})}, [](auto& x) {
    CHECK_EQ(x[0].sum().item().toDouble(), 3.0);
    return x[0] * 2;
  });
  CHECK_EQ(names, (Names{"aten::sum", "prims::item", "prims::check_number", "aten::mul"}));
}

TEST(shapes_that_follow_from_data_are_checked) {
  const std::vector<at::Tensor> inputs = {at::tensor({1.0, -1.0, 2.0})};
  const auto sizes = [](const at::Tensor& tensor) { return tensor.sizes().vec(); };
  const Names selected = recorded(inputs, [&](auto& x) {
    const at::Tensor positive = x[0].masked_select(x[0] > 0);
    CHECK_EQ(sizes(positive), std::vector<std::int64_t>{2});
    return positive * 2;
  });
  CHECK_EQ(selected, (Names{"aten::gt", "aten::masked_select", "prims::check_shape", "aten::mul"}));
  const Names indexed = recorded(inputs, [&](auto& x) {
    const at::Tensor positive = x[0].index({x[0] > 0});
    CHECK_EQ(sizes(positive), std::vector<std::int64_t>{2});
    return positive;
  });
  CHECK_EQ(indexed, (Names{"aten::gt", "aten::nonzero", "prims::check_shape", "aten::select", "aten::index"}));
  const Names places = recorded(inputs, [&](auto& x) {
    CHECK_EQ(sizes(x[0].nonzero()), (std::vector<std::int64_t>{3, 1}));
    return x[0] * 2;
  });
  CHECK_EQ(places, (Names{"aten::nonzero", "prims::check_shape", "aten::mul"}));
}

TEST(mask_that_gives_a_known_shape_is_not_checked) {
  const Names names = recorded({at::randn({3})}, [](auto& x) { return x[0].masked_fill(x[0] > 0, 1); });
  CHECK_EQ(names, (Names{"aten::gt", "aten::masked_fill"}));
}

TEST(reading_data_is_refused_with_full_graph) {
  const std::vector<at::Tensor> inputs = {at::ones({3})};
  const auto read_number = [](auto& x) { return x[0] * x[0].sum().item(); };
  const auto read_shape = [](auto& x) { return x[0].masked_select(x[0] > 0); };
  const auto read_nothing = [](auto& x) { return x[0].sum(); };
  CHECK_THROWS(recorded(inputs, read_number, /*full_graph=*/true), thunder::UserError);
  CHECK_THROWS(recorded(inputs, read_shape, /*full_graph=*/true), thunder::UserError);
  CHECK_EQ(recorded(inputs, read_nothing, /*full_graph=*/true), (Names{"aten::sum"}));
}

TEST(wrong_shapes_are_refused_as_in_eager) {
  CHECK_THROWS(recorded({at::randn({2, 3}), at::randn({4, 5})}, [](auto& x) { return at::mm(x[0], x[1]); }),
               c10::Error);
}
