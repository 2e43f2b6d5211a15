// Parameters are gathered ahead of their use, gradients scattered when they arise; buckets go together.
#include <list>
#include <string>
#include <vector>

#include "check.h"
#include "ir/builder.h"
#include "ir/verifier.h"
#include "passes/pass.h"

namespace thunder::passes {

extern const Pass kGradientScatters;
extern const Pass kParameterGathers;

namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

std::list<Operator>& rows() {
  static std::list<Operator> operators;
  return operators;
}
const Operator& add_row(const char* schema) { return rows().emplace_back(parse_operator(schema)); }
const Operator* find_row(const std::string& name, const std::string& overload) {
  for (const Operator& op : rows()) {
    if (op.name == name && op.overload == overload) return &op;
  }
  return nullptr;
}

const Operator& kGather =
    add_row("thunder::gather_shards(Tensor shard, int[] size, str group_name, int group_size, str bucket) -> Tensor");
const Operator& kScatter =
    add_row("thunder::scatter_gradient(Tensor gradient, str group_name, int group_size, str bucket) -> Tensor");
const Operator& kMm = add_row("aten::mm(Tensor self, Tensor mat2) -> Tensor");
[[maybe_unused]] const Operator& kOthers = []() -> const Operator& {
  add_row("_c10d_functional::all_gather_into_tensor(Tensor input, int group_size, str group_name) -> Tensor");
  add_row(
      "_c10d_functional::all_gather_into_tensor_coalesced(Tensor[] inputs, int group_size, str group_name) -> "
      "Tensor[]");
  add_row(
      "_c10d_functional::reduce_scatter_tensor(Tensor input, str reduce_op, int group_size, str group_name) -> "
      "Tensor");
  add_row(
      "_c10d_functional::reduce_scatter_tensor_coalesced(Tensor[] inputs, str reduce_op, int group_size, str "
      "group_name) -> Tensor[]");
  add_row("_c10d_functional::wait_tensor(Tensor tensor) -> Tensor");
  add_row("aten::mul.Scalar(Tensor self, Scalar other) -> Tensor");
  add_row("aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)");
  add_row("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)");
  add_row("aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor");
  add_row("aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor");
  return add_row(
      "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> "
      "Tensor(a)");
}();

TypePtr matrix(std::int64_t rows, Dtype dtype = Dtype::kFloat32) { return tensor_type(dtype, {rows, 8}); }

struct Example {
  Trace trace{TraceKind::kBackward, std::make_shared<TraceContext>()};
  ValueId x = trace.add_input(matrix(8), "x");

  ValueId shard(std::int64_t rows = 4) { return trace.add_input(matrix(rows)); }
  ValueId gather(ValueId shard, const char* bucket, std::int64_t rows = 8) {
    return add_call(trace, kGather, {shard, ArgumentList{rows, 8}, "0", 2, bucket}, matrix(rows));
  }
  ValueId scatter(ValueId gradient, const char* bucket, std::int64_t rows = 4, Dtype dtype = Dtype::kFloat32) {
    return add_call(trace, kScatter, {gradient, "0", 2, bucket}, matrix(rows, dtype));
  }
  ValueId mm(ValueId a, ValueId b) { return add_call(trace, kMm, {a, b}, trace.value(a).type); }

  [[nodiscard]] std::string rewritten(const Pass& pass) const {
    const Trace result = pass.run(trace, &find_row);
    verify(result, "test");
    std::string names;
    for (const BoundSymbol& symbol : result.symbols) {
      std::string name = symbol.op->name.substr(symbol.op->name.find("::") + 2);
      for (const char* whole : {"all_gather", "reduce_scatter", "wait"}) {
        const bool is_list = name.ends_with("coalesced");
        if (name.starts_with(whole)) name = std::string(whole) + (is_list ? "s" : "");
      }
      names += (names.empty() ? "" : " ") + name;
    }
    return names;
  }
};

}  // namespace

TEST(the_next_parameter_is_gathered_while_one_is_used) {
  Example e;
  std::vector<ValueId> wholes;
  for (int i = 0; i < 3; ++i) wholes.push_back(e.gather(e.shard(), ""));
  ValueId y = e.x;
  for (const ValueId whole : wholes) y = e.mm(y, whole);
  e.trace.outputs = {y};
  CHECK_EQ(e.rewritten(kParameterGathers), "all_gather wait all_gather mm wait all_gather mm wait mm");
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

TEST(a_parameter_that_is_only_returned_is_gathered) {
  Example e;
  const ValueId whole = e.gather(e.shard(), "");
  const ValueId y = e.mm(e.x, e.x);
  e.trace.outputs = {y, whole};
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

TEST(a_gradient_is_filled_up_with_rows_of_zeros) {
  Example e;
  const ValueId row = e.trace.add_input(matrix(7));
  e.trace.outputs = {e.scatter(row, "")};
  CHECK_EQ(e.rewritten(kGradientScatters), "constant_pad_nd reduce_scatter wait mul");
}

TEST(float16_is_divided_before_it_is_summed) {
  Example e;
  const ValueId gradient = e.trace.add_input(matrix(8, Dtype::kFloat16));
  e.trace.outputs = {e.scatter(gradient, "", 4, Dtype::kFloat16)};
  CHECK_EQ(e.rewritten(kGradientScatters), "mul reduce_scatter wait");
}

}  // namespace thunder::passes
