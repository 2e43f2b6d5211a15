#include <algorithm>
#include <string_view>

#include "check.h"
#include "fusion/buffer_assignment.h"
#include "fusion/region.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"

namespace thunder::fusion {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)
using passes::add_row;
using passes::find_row;

const Operator& kReduce =
    add_row("_c10d_functional::all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor");
const Operator& kWait = add_row("_c10d_functional::wait_tensor(Tensor tensor) -> Tensor");

/// There are no fusions in these traces.
const Target* no_target(std::string_view) { return nullptr; }

const Operator& kAdd = add_row("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator& kAddInPlace =
    add_row("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)");
const Operator& kMm = add_row("aten::mm(Tensor self, Tensor mat2) -> Tensor");
const Operator& kView = add_row("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)");
const Operator& kCopy = add_row("aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)");
const Operator& kIndexCopy = add_row("aten::index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor");
const Operator& kIndexCopyInPlace =
    add_row("aten::index_copy_(Tensor(a!) self, int dim, Tensor index, Tensor source) -> Tensor(a!)");
const Operator& kExp = add_row("aten::exp(Tensor self) -> Tensor");
const Operator& kCat = add_row("aten::cat(Tensor[] tensors, int dim=0) -> Tensor");
[[maybe_unused]] const Operator& kSlice = add_row(
    "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)");
[[maybe_unused]] const Operator& kEmpty = add_row(
    "aten::empty_strided(SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, Layout? layout=None, "
    "Device? device=None, bool? pin_memory=None) -> Tensor");
const Operator& kGelu = add_row("aten::gelu_backward(Tensor grad_output, Tensor self) -> Tensor");
const Operator& kGeluInto =
    add_row("aten::gelu_backward.grad_input(Tensor grad_output, Tensor self, *, Tensor(a!) grad_input) -> Tensor(a!)");

struct Example {
  explicit Example(std::int64_t size = 64) : type(tensor_type(Dtype::kFloat32, {size, size})) {}
  Trace trace{"computation", std::make_shared<TraceContext>()};
  TypePtr type;
  ValueId x = trace.add_input(type, "x");
  ValueId y = trace.add_input(type, "y");

  ValueId mm() { return add_call(trace, kMm, {x, y}, type); }
  ValueId add(ValueId a, ValueId b, Argument alpha = 1) { return add_call(trace, kAdd, {a, b, alpha}, type); }
  [[nodiscard]] Trace rewritten() const {
    Trace result = assign_buffers(trace, &no_target, &find_row);
    verify(result, "test");
    return result;
  }
  [[nodiscard]] std::size_t writes() const {
    const Trace result = rewritten();
    return static_cast<std::size_t>(std::count_if(result.symbols.begin(), result.symbols.end(),
                                                  [](const auto& symbol) { return symbol.op->mutates; }));
  }
};

}  // namespace

TEST(a_dying_value_gives_its_memory) {
  Example e;
  const ValueId product = e.mm();
  const ValueId sum = e.add(product, e.x);
  e.trace.outputs = {e.add(sum, e.mm())};
  CHECK_EQ(print(e.rewritten()), R"(# computation: buffer_assignment
import torch

@torch.no_grad()
def computation(x, y):
  # x: "cpu f32[64, 64]"
  # y: "cpu f32[64, 64]"
  t2 = torch.ops.aten.mm.default(x, y)  # t2: "cpu f32[64, 64]"
  t3 = torch.ops.aten.add_.Tensor(t2, x)  # t3: "cpu f32[64, 64]"
  del t2
  t4 = torch.ops.aten.mm.default(x, y)  # t4: "cpu f32[64, 64]"
  del x, y
  t5 = torch.ops.aten.add_.Tensor(t3, t4)  # t5: "cpu f32[64, 64]"
  del t3, t4
  return (t5,)
)");
}

TEST(a_commuting_operation_takes_the_other_side) {
  Example e, scaled;
  e.trace.outputs = {e.add(e.x, e.mm())};
  CHECK_EQ(e.writes(), 1U);
  scaled.trace.outputs = {scaled.add(scaled.x, scaled.mm(), 2)};
  CHECK_EQ(scaled.writes(), 0U);
}

TEST(an_out_variant_writes_where_there_is_no_in_place_one) {
  Example e;
  e.trace.outputs = {add_call(e.trace, kGelu, {e.mm(), e.x}, e.type)};
  const Trace result = e.rewritten();
  CHECK(result.symbols[1].op == &kGeluInto);
  CHECK(result.symbols[1].arguments[2] == result.symbols[1].arguments[0]);
}

TEST(inputs_outputs_and_values_that_live_on_keep_their_memory) {
  Example input, output, later, viewed;
  input.trace.outputs = {input.add(input.x, input.y)};
  CHECK_EQ(input.writes(), 0U);
  const ValueId product = output.mm();
  output.trace.outputs = {product, output.add(product, output.y)};
  CHECK_EQ(output.writes(), 0U);
  const ValueId used = later.mm();
  const ValueId sum = later.add(used, later.y);
  later.trace.outputs = {add_call(later.trace, kMm, {sum, used}, later.type)};
  CHECK_EQ(later.writes(), 0U);
  const ValueId base = viewed.mm();
  const ValueId view = add_call(viewed.trace, kView, {base, ArgumentList{64, 64}}, viewed.type);
  viewed.trace.outputs = {viewed.add(base, viewed.y), view};
  CHECK_EQ(viewed.writes(), 0U);
}

/// An operation on memory of the caller whose result is copied there.
struct CallersMemory {
  explicit CallersMemory(Device device = {}) : device(device) {}

  Device device;
  Trace trace{"computation", std::make_shared<TraceContext>()};
  TypePtr type = tensor_type(Dtype::kFloat32, {8, 4}, device);
  ValueId cache = trace.add_input(type, "cache");
  ValueId index = trace.add_input(tensor_type(Dtype::kInt64, {1}, device), "index");
  ValueId row = trace.add_input(tensor_type(Dtype::kFloat32, {1, 4}, device), "row");

  ValueId copied_by_index() { return add_call(trace, kIndexCopy, {cache, 0, index, row}, type); }
  ValueId sum() { return add_call(trace, kAdd, {cache, row, 1}, type); }
  void copy(ValueId value) { add_call(trace, kCopy, {cache, value, false}, type); }
  [[nodiscard]] std::vector<std::string> operations() const {
    Trace result = assign_buffers(trace, &no_target, &find_row);
    verify(result, "test");
    std::vector<std::string> names;
    for (const BoundSymbol& symbol : result.symbols) names.push_back(symbol.op->name);
    return names;
  }
};
using Names = std::vector<std::string>;

template <bool stores_rows>
constexpr Target kTarget{.accepts = [](const TensorType&) { return true; },
                         .has = [](ElementOp, ComputeType) { return true; },
                         .permutes = true,
                         .stores_rows = stores_rows};

/// A fusion whose result is copied to rows of a cache of the caller's.
struct RowsOfCache {
  explicit RowsOfCache(bool stores_rows = true) : stores_rows(stores_rows) {
    made = trace.add_value(row_type);
    BoundSymbol operation;
    operation.op = &kExp;
    operation.arguments = {row};
    operation.results = {made};
    trace.add(make_block("cuda", kKernel, {row}, {made}, {operation}));
  }

  bool stores_rows;
  Device device{DeviceType::kCuda, 0};
  Trace trace{"computation", std::make_shared<TraceContext>()};
  TypePtr cache_type = tensor_type(Dtype::kFloat32, {8, 4}, device);
  TypePtr row_type = tensor_type(Dtype::kFloat32, {1, 4}, device);
  ValueId cache = trace.add_input(cache_type, "cache");
  ValueId index = trace.add_input(tensor_type(Dtype::kInt64, {1}, device), "index");
  ValueId row = trace.add_input(row_type, "row");
  ValueId made = kNoValue;

  ValueId copied() {
    const ValueId copied = add_call(trace, kIndexCopy, {cache, 0, index, made}, cache_type);
    add_call(trace, kCopy, {cache, copied, false}, cache_type);
    return copied;
  }
  [[nodiscard]] Trace rewritten() const {
    const auto with = [](std::string_view) -> const Target* { return &kTarget<true>; };
    const auto without = [](std::string_view) -> const Target* { return &kTarget<false>; };
    Trace result = assign_buffers(trace, stores_rows ? FindTarget(with) : FindTarget(without), &find_row);
    verify(result, "test");
    return result;
  }
};

TEST(an_operation_on_memory_of_the_caller_writes_there) {
  CallersMemory e;
  const ValueId sum = e.sum();
  e.trace.outputs = {add_call(e.trace, kMm, {sum, e.row}, e.type)};
  e.copy(sum);
  CHECK(e.operations() == (Names{"aten::add_", "aten::mm"}));
}

TEST(strides_that_were_recorded_raise_nothing) {
  static const Operator& kRestride = add_row("thunder::restride(Tensor(a) self, int[] strides) -> Tensor(a)");
  CallersMemory e;
  const ValueId sum = e.sum();
  e.trace.outputs = {add_call(e.trace, kRestride, {e.row, ArgumentList{4, 1}}, tensor_type(Dtype::kFloat32, {1, 4}))};
  e.copy(sum);
  CHECK(e.operations() == (Names{"aten::add_", "thunder::restride"}));
}

TEST(strides_that_stay_inside_of_a_tensor_raise_nothing) {
  static const Operator& kAsStrided = add_row(
      "aten::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)");
  for (const std::int64_t rows : {1, 2}) {
    CallersMemory e;
    const ValueId sum = e.sum();
    e.trace.outputs = {add_call(e.trace, kAsStrided, {e.row, ArgumentList{rows, 4}, ArgumentList{4, 1}, None{}},
                                tensor_type(Dtype::kFloat32, {rows, 4}))};
    e.copy(sum);
    const std::string_view first = rows == 1 ? "aten::add_" : "aten::add";
    CHECK_EQ(e.operations()[0], first);
  }
}

TEST(an_index_may_be_out_of_bounds_on_the_cpu_only) {
  for (const DeviceType device : {DeviceType::kCpu, DeviceType::kCuda}) {
    CallersMemory e(Device{device, 0});
    e.copy(e.copied_by_index());
    const bool is_cpu = device == DeviceType::kCpu;
    CHECK(e.operations() == (is_cpu ? Names{"aten::index_copy", "aten::copy_"} : Names{"aten::index_copy_"}));
  }
}

TEST(a_fusion_writes_rows_of_the_caller_that_it_alone_makes) {
  for (const bool stores_rows : {true, false}) {
    RowsOfCache e(stores_rows);
    e.trace.outputs = {add_call(e.trace, kMm, {e.copied(), e.row}, e.cache_type)};
    const Trace result = e.rewritten();
    CHECK_EQ(result.symbols.size(), stores_rows ? 2U : 3U);
    if (!stores_rows) continue;
    CHECK_EQ(print(result), R"(# computation: buffer_assignment
import torch
from thunder import prims

@torch.no_grad()
def computation(cache, index, row):
  # cache: "cuda:0 f32[8, 4]"
  # index: "cuda:0 i64[1]"
  # row: "cuda:0 f32[1, 4]"
  with prims.fused("cuda", [row, cache, index]):
    t3 = torch.ops.aten.exp.default(row)  # t3: "cuda:0 f32[1, 4]"
    torch.ops.aten.index_copy_.default(cache, 0, index, t3)
  del index
  t6 = torch.ops.aten.mm.default(cache, row)  # t6: "cuda:0 f32[8, 4]"
  del cache, row
  return (t6,)
)");
  }
}

TEST(one_kernel_copies_a_cache_that_gets_one_more_row_where_kernels_are_batched) {
  constexpr static Target kBatching{.accepts = [](const TensorType&) { return true; },
                                    .has = [](ElementOp, ComputeType) { return true; },
                                    .largest_in_batch = 4096};
  const auto batching = [](std::string_view) -> const Target* { return &kBatching; };
  const auto not_batching = [](std::string_view) -> const Target* { return &kTarget<true>; };
  for (const bool is_batched : {true, false}) {
    RowsOfCache e;
    const TypePtr grown = tensor_type(Dtype::kFloat32, {9, 4}, e.device);
    e.trace.outputs = {add_call(e.trace, kCat, {ArgumentList{e.cache, e.made}, 0}, grown)};
    const Trace result =
        assign_buffers(e.trace, is_batched ? FindTarget(batching) : FindTarget(not_batching), &find_row);
    verify(result, "test");
    const auto is_cat = [](const BoundSymbol& symbol) { return symbol.op == &kCat; };
    CHECK_EQ(std::ranges::any_of(result.symbols, is_cat), is_batched);
  }
}

TEST(rows_that_others_read_or_a_cache_that_is_read_before_stay_with_their_operation) {
  const auto writes_by_itself = [](const Trace& trace) {
    return std::ranges::any_of(trace.symbols, [](const auto& symbol) { return symbol.op == &kIndexCopyInPlace; });
  };
  RowsOfCache read;
  read.trace.outputs = {add_call(read.trace, kMm, {read.copied(), read.row}, read.cache_type), read.made};
  CHECK(writes_by_itself(read.rewritten()));
  RowsOfCache before;
  const ValueId seen = add_call(before.trace, kExp, {before.cache}, before.cache_type);
  before.trace.outputs = {add_call(before.trace, kMm, {before.copied(), before.row}, before.cache_type), seen};
  CHECK(writes_by_itself(before.rewritten()));
}

TEST(memory_of_the_caller_that_is_read_later_or_returned_is_not_written_before) {
  CallersMemory read;
  const ValueId sum = read.sum();
  read.trace.outputs = {add_call(read.trace, kMm, {read.cache, sum}, read.type)};
  read.copy(sum);
  CHECK_EQ(read.operations().front(), "aten::add");
  CallersMemory returned;
  const ValueId given = returned.sum();
  returned.copy(given);
  returned.trace.outputs = {given};
  CHECK_EQ(returned.operations().front(), "aten::add");
}

TEST(a_value_read_twice_by_the_operation_is_not_written) {
  Example e;
  const ValueId product = e.mm();
  e.trace.outputs = {e.add(product, product)};
  CHECK_EQ(e.writes(), 0U);
}

TEST(memory_that_a_collective_reads_is_kept_until_the_wait) {
  Example e;
  const ValueId made = e.mm();
  const ValueId started = add_call(e.trace, kReduce, {made, "sum", "0"}, e.type);
  const ValueId between = e.add(made, e.x);
  const ValueId waited = add_call(e.trace, kWait, {started}, e.type);
  e.trace.outputs = {e.add(between, waited)};
  const Trace result = e.rewritten();
  CHECK(result.symbols[2].op == &kAdd);
  CHECK(result.symbols[4].op == keep_operator());
  CHECK(result.symbols[4].arguments[0] == Argument(ArgumentList{made}));
  CHECK(result.symbols[5].op == &kAddInPlace);
}

TEST(memory_that_nobody_waits_for_is_kept_to_the_end) {
  Example e;
  const ValueId made = e.mm();
  const ValueId started = add_call(e.trace, kReduce, {made, "sum", "0"}, e.type);
  e.trace.outputs = {e.add(made, e.x)};
  const Trace result = e.rewritten();
  CHECK(result.symbols[2].op == &kAdd);
  CHECK(result.symbols[3].arguments[0] == Argument(ArgumentList{made, started}));
}

TEST(small_tensors_are_left_alone) {
  Example e(8);
  e.trace.outputs = {e.add(e.mm(), e.x)};
  CHECK_EQ(e.writes(), 0U);
}

}  // namespace thunder::fusion
