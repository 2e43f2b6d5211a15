// Parameters are gathered ahead of their use, gradients scattered when they arise; buckets go together.
#include <string>
#include <vector>

#include "check.h"
#include "ir/builder.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/pass.h"

namespace thunder::passes {

extern const Pass kGradientScatters;
extern const Pass kParameterGathers;

namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kGather = add_row(
    "thunder::gather_shards(Tensor shard, int[] size, str group_name, int group_size, str bucket, ScalarType? "
    "dtype=None, ScalarType? reduce_dtype=None) -> Tensor");
const Operator& kScatter = add_row(
    "thunder::scatter_gradient(Tensor gradient, int rows, ScalarType dtype, str group_name, int group_size, str "
    "bucket, ScalarType? reduce_dtype=None) -> Tensor");
const Operator& kAverage = add_row(
    "thunder::average_gradient(Tensor gradient, str group_name, int group_size, int bucket_bytes, ScalarType? "
    "dtype=None, int? order=None) -> Tensor");
const Operator& kMm = add_row("aten::mm(Tensor self, Tensor mat2) -> Tensor");
[[maybe_unused]] const bool kHasCollectives = add_collectives();

TypePtr matrix(std::int64_t rows, Dtype dtype = Dtype::kFloat32) { return tensor_type(dtype, {rows, 8}); }

struct Example {
  Trace trace{TraceKind::kBackward, std::make_shared<TraceContext>()};
  ValueId x = trace.add_input(matrix(8), "x");

  ValueId shard(std::int64_t rows = 4) { return trace.add_input(matrix(rows)); }
  ValueId gather(ValueId shard, const char* bucket, std::int64_t rows = 8, Dtype dtype = Dtype::kFloat32,
                 Device device = {}) {
    return add_call(trace, kGather, {shard, ArgumentList{rows, 8}, "0", 2, bucket, dtype},
                    tensor_type(dtype, {rows, 8}, device));
  }
  ValueId scatter(ValueId gradient, const char* bucket, std::int64_t rows = 4, Argument reduce_dtype = {},
                  Device device = {}) {
    const Dtype dtype = trace.tensor_type(gradient)->dtype;
    return add_call(trace, kScatter, {gradient, rows, dtype, "0", 2, bucket, std::move(reduce_dtype)},
                    tensor_type(dtype, {rows, 8}, device));
  }
  ValueId move(ValueId a, Device device) {
    TensorType type = *trace.tensor_type(a);
    type.device = device;
    return add_call(trace, *find_row("aten::_to_copy", ""), {a, type.dtype}, make_type(type));
  }
  ValueId mm(ValueId a, ValueId b) { return add_call(trace, kMm, {a, b}, trace.value(a).type); }

  [[nodiscard]] std::string rewritten(const Pass& pass) const {
    const Trace result = pass.run(trace, &find_row);
    verify(result, "test");
    std::string names;
    for (const BoundSymbol& symbol : result.symbols) {
      std::string name = symbol.op->name.substr(symbol.op->name.find("::") + 2);
      for (const char* start : {"all_gather", "reduce_scatter", "wait"}) {
        const bool is_list = name.ends_with("coalesced");
        if (name.starts_with(start)) name = std::string(start) + (is_list ? "s" : "");
      }
      names += (names.empty() ? "" : " ") + name;
    }
    return names;
  }
};

}  // namespace

TEST(the_next_parameter_is_gathered_while_one_is_used) {
  Example e;
  std::vector<ValueId> gathered;
  for (int i = 0; i < 3; ++i) gathered.push_back(e.gather(e.shard(), ""));
  ValueId y = e.x;
  for (const ValueId each : gathered) y = e.mm(y, each);
  e.trace.outputs = {y};
  CHECK_EQ(e.rewritten(kParameterGathers), "all_gather wait all_gather mm wait all_gather mm wait mm");
}

TEST(shards_of_another_device_are_copied_where_their_gather_starts) {
  Example e;
  const Device gpu{DeviceType::kCuda, 0};
  std::vector<ValueId> gathered;
  for (int i = 0; i < 3; ++i) gathered.push_back(e.gather(e.move(e.shard(), gpu), "", 8, Dtype::kFloat32, gpu));
  ValueId y = e.trace.add_input(tensor_type(Dtype::kFloat32, {8, 8}, gpu));
  for (const ValueId each : gathered) y = e.mm(y, each);
  e.trace.outputs = {y};
  CHECK_EQ(e.rewritten(kParameterGathers),
           "_to_copy all_gather wait _to_copy all_gather mm wait _to_copy all_gather mm wait mm");
}

TEST(gradients_are_copied_to_another_device_at_the_end) {
  Example e;
  const Device gpu{DeviceType::kCuda, 0};
  const ValueId first = e.mm(e.trace.add_input(tensor_type(Dtype::kFloat32, {8, 8}, gpu)), e.x);
  const ValueId second = e.mm(first, first);
  e.trace.outputs = {e.move(e.scatter(first, "", 4, {}, gpu), Device()),
                     e.move(e.scatter(second, "", 4, {}, gpu), Device())};
  CHECK_EQ(e.rewritten(kGradientScatters), "mm reduce_scatter mm reduce_scatter wait mul wait mul _to_copy _to_copy");
}

TEST(parameters_of_a_bucket_are_gathered_together) {
  Example e;
  const ValueId first = e.gather(e.shard(), "layer");
  const ValueId second = e.gather(e.shard(), "layer");
  e.trace.outputs = {e.mm(e.mm(e.x, first), second)};
  CHECK_EQ(e.rewritten(kParameterGathers), "all_gathers wait wait mm mm");
}

TEST(rows_that_fill_shards_up_are_left_out) {
  Example e;
  e.trace.outputs = {e.mm(e.gather(e.shard(4), "", 7), e.x)};
  CHECK_EQ(e.rewritten(kParameterGathers), "all_gather wait slice mm");
}

TEST(a_shard_with_fewer_rows_is_filled_up) {
  Example e;
  e.trace.outputs = {e.mm(e.gather(e.shard(3), "", 7), e.x)};
  CHECK_EQ(e.rewritten(kParameterGathers), "constant_pad_nd all_gather wait slice mm");
}

TEST(a_parameter_is_sent_in_another_dtype) {
  Example e;
  e.trace.outputs = {e.mm(e.gather(e.shard(), "", 8, Dtype::kBfloat16), e.x)};
  CHECK_EQ(e.rewritten(kParameterGathers), "_to_copy all_gather wait mm");
}

TEST(a_parameter_that_is_only_returned_is_gathered) {
  Example e;
  const ValueId gathered = e.gather(e.shard(), "");
  const ValueId y = e.mm(e.x, e.x);
  e.trace.outputs = {y, gathered};
  CHECK_EQ(e.rewritten(kParameterGathers), "all_gather mm wait");
}

TEST(small_parameters_are_gathered_ahead_up_to_the_largest) {
  Example e;
  const ValueId large = e.gather(e.shard(8), "", 16);
  const ValueId first = e.gather(e.shard(), "");
  const ValueId second = e.gather(e.shard(), "");
  e.trace.outputs = {e.mm(e.mm(e.mm(large, e.x), first), second)};
  CHECK_EQ(e.rewritten(kParameterGathers), "all_gather wait all_gather all_gather mm wait mm wait mm");
}

TEST(a_gradient_is_scattered_when_it_arises) {
  Example e;
  const ValueId first = e.mm(e.x, e.x);
  const ValueId second = e.mm(first, e.x);
  e.trace.outputs = {e.scatter(second, ""), e.scatter(first, "")};
  CHECK_EQ(e.rewritten(kGradientScatters), "mm reduce_scatter mm reduce_scatter wait mul wait mul");
}

TEST(two_scatters_are_under_way_at_most) {
  Example e;
  ValueId y = e.x;
  ArgumentList scattered;
  std::vector<ValueId> gradients;
  for (int i = 0; i < 3; ++i) gradients.push_back(y = e.mm(y, e.x));
  for (const ValueId gradient : gradients) scattered.emplace_back(e.scatter(gradient, ""));
  e.trace.outputs = scattered;
  CHECK_EQ(e.rewritten(kGradientScatters),
           "mm reduce_scatter mm reduce_scatter mm wait mul reduce_scatter wait mul wait mul");
}

TEST(gradients_of_a_bucket_are_scattered_together) {
  Example e;
  const ValueId first = e.mm(e.x, e.x);
  const ValueId second = e.mm(first, e.x);
  e.trace.outputs = {e.scatter(second, "layer"), e.scatter(first, "layer")};
  CHECK_EQ(e.rewritten(kGradientScatters), "mm mm reduce_scatters wait mul wait mul");
}

TEST(shards_of_gradients_are_averaged_behind_the_waits) {
  Example e;
  const ValueId first = e.mm(e.x, e.x);
  const ValueId shard = e.scatter(first, "");
  const ValueId average = add_call(e.trace, kAverage, {shard, "1", 2, 0}, matrix(4));
  e.trace.outputs = {e.mm(first, e.x), average};
  CHECK_EQ(e.rewritten(kGradientScatters), "mm reduce_scatter mm wait mul average_gradient");
}

TEST(a_gradient_is_filled_up_with_rows_of_zeros) {
  Example e;
  const ValueId row = e.trace.add_input(matrix(7));
  e.trace.outputs = {e.scatter(row, "")};
  CHECK_EQ(e.rewritten(kGradientScatters), "constant_pad_nd reduce_scatter wait mul");
}

TEST(a_shard_of_a_gradient_may_have_fewer_rows) {
  Example e;
  e.trace.outputs = {e.scatter(e.trace.add_input(matrix(7)), "", 3)};
  CHECK_EQ(e.rewritten(kGradientScatters), "constant_pad_nd reduce_scatter wait mul slice");
}

TEST(a_gradient_is_summed_in_another_dtype) {
  Example e;
  e.trace.outputs = {e.scatter(e.trace.add_input(matrix(8, Dtype::kBfloat16)), "", 4, Dtype::kFloat32)};
  CHECK_EQ(e.rewritten(kGradientScatters), "_to_copy reduce_scatter wait mul _to_copy");
}

TEST(float16_is_divided_before_it_is_summed) {
  Example e;
  const ValueId gradient = e.trace.add_input(matrix(8, Dtype::kFloat16));
  e.trace.outputs = {e.scatter(gradient, "")};
  CHECK_EQ(e.rewritten(kGradientScatters), "mul reduce_scatter wait");
}

}  // namespace thunder::passes
