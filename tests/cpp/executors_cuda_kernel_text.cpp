#include <string>

#include "check.h"
#include "executors/cuda_kernels/kernel_source.h"
#include "executors/cuda_kernels/simplified.h"
#include "fusion/kernel_graph.h"

namespace thunder::executors::cuda {
namespace {

using fusion::Access;
using fusion::ElementOp;
using fusion::KernelGraph;
using Value = KernelGraph::Value;

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kColumns = 48;

KernelGraph graph() {
  fusion::KernelDomain domain;
  domain.outer = {kRows};
  domain.columns = kColumns;
  domain.splits_columns = true;
  return KernelGraph(std::move(domain));
}

Access matrix(std::uint32_t array) {
  Access access;
  access.array = array;
  access.outer_strides = {kColumns};
  access.inner_stride = 1;
  return access;
}

std::string text_of(const KernelGraph& graph, const LaunchFacts& facts = {}) {
  return emit_source(graph.at(), facts).value().text;
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Two parts side by side, the first of which has so many columns.
std::string joined(std::int64_t columns, const LaunchFacts& facts = {}) {
  KernelGraph joining = graph();
  Access access;
  access.parts = {{0, {{0, kRows, columns}}, {0, 1, 0}, {0, columns, 1}},
                  {1, {{0, kRows, kColumns - columns}}, {0, 1, 0}, {columns, kColumns, 1}}};
  joining.store(joining.assemble(std::move(access), std::nullopt), 2, ir::Dtype::kFloat32);
  return text_of(joining, facts);
}

/// Two sums over `rows` rows of `columns` columns of 16-bit floats, of arrays 0 and 1, besides a value for each
/// element.
KernelGraph column_sums(std::int64_t rows, std::int64_t columns) {
  fusion::KernelDomain domain;
  domain.outer = {rows};
  domain.columns = columns;
  KernelGraph made(std::move(domain));
  const auto load = [&](std::uint32_t array) {
    Access access = matrix(array);
    access.outer_strides = {columns};
    access.dtype = ir::Dtype::kBfloat16;
    return made.load(std::move(access));
  };
  const Value operands[] = {load(0), load(1)};
  made.column_sum(operands[0], 2, ir::Dtype::kFloat32, {});
  made.column_sum(made.element(ElementOp::kMultiply, operands), 3, ir::Dtype::kFloat32, {});
  return made;
}

/// `gelu`, or its slope, of array 0 in array 1.
std::string gelu(ir::Dtype dtype) {
  KernelGraph made = graph();
  const Value x[] = {made.load(matrix(0))};
  const Value cdf[] = {x[0], made.element(ElementOp::kNormalCdf, x)};
  made.store(made.element(ElementOp::kGeluSlope, cdf), 1, dtype);
  return text_of(made);
}

}  // namespace

TEST(thread_blocks_with_sums_of_their_own_all_work_at_the_same_time) {
  const KernelSource source = emit_source(column_sums(100'000, 256).at(), {.multiprocessors = 100}).value();
  CHECK_EQ(source.launches[0].grid % 100, std::int64_t{0});
  const std::int64_t blocks = source.launches[0].grid / 100;
  const std::string bounds = "__launch_bounds__(" + std::to_string(source.launches[0].threads) + ", ";
  CHECK_EQ(count(source.text, bounds + std::to_string(blocks) + ")"), std::size_t{1});
}

TEST(shares_of_each_sum_are_added_by_thread_blocks_of_their_own) {
  constexpr std::int64_t kColumnsOfBlock = 8;
  const KernelSource source = emit_source(column_sums(100'000, 256).at(), {}).value();
  CHECK_EQ(source.launches[1].grid, 2 * 256 / kColumnsOfBlock);
}

TEST(rows_that_are_summed_are_loaded_before_the_first_is_computed) {
  const std::string text = text_of(column_sums(100'000, 256));
  const std::size_t load = text.rfind("ahead1[u] = read(");
  CHECK(load != std::string::npos);
  CHECK(load < text.find("value_of(vector0.at[e])"));
}

TEST(a_gelu_of_16_bits_takes_the_cheaper_functions) {
  for (const ir::Dtype dtype : {ir::Dtype::kBfloat16, ir::Dtype::kFloat16, ir::Dtype::kFloat32}) {
    const std::size_t narrow = dtype == ir::Dtype::kFloat32 ? 0 : 1;
    CHECK_EQ(count(gelu(dtype), "= narrow_normal_cdf(v"), narrow);
    CHECK_EQ(count(gelu(dtype), "= narrow_gelu_slope(v"), narrow);
  }
}

TEST(long_rows_that_are_read_again_stay_in_the_cache) {
  const auto grid_of = [](std::int64_t columns) {
    fusion::KernelDomain domain;
    domain.outer = {4096};
    domain.columns = columns;
    KernelGraph made(std::move(domain));
    Access access = matrix(0);
    access.outer_strides = {columns};
    const Value x = made.load(std::move(access));
    const Value operands[] = {x, made.expand(made.reduce(fusion::Reduction::kMax, x))};
    made.store(made.element(ElementOp::kSubtract, operands), 1, ir::Dtype::kFloat32);
    return emit_source(made.at(), {.multiprocessors = 100}).value().launches[0].grid;
  };
  CHECK_EQ(grid_of(100'000), std::int64_t{100});
  CHECK_EQ(grid_of(40'000), std::int64_t{200});
  CHECK(grid_of(1024) > 400);
}

TEST(long_rows_of_odd_lengths_are_read_by_vectors) {
  const auto softmax = [](std::int64_t columns, std::int64_t stride, const LaunchFacts& facts) {
    fusion::KernelDomain domain;
    domain.outer = {64};
    domain.columns = columns;
    KernelGraph made(std::move(domain));
    Access access = matrix(0);
    access.outer_strides = {stride};
    access.dtype = ir::Dtype::kBfloat16;
    const Value x = made.load(std::move(access));
    const Value operands[] = {x, made.expand(made.reduce(fusion::Reduction::kMax, x))};
    made.store(made.element(ElementOp::kSubtract, operands), 1, ir::Dtype::kBfloat16);
    return count(text_of(made, facts), "= is_inside ? read(reinterpret_cast<const Vector<Bfloat16, 8>*>");
  };
  CHECK(softmax(50'257, 50'257, {}) > 0);
  CHECK(softmax(30'522, 30'522, {}) > 0);
  CHECK_EQ(softmax(50'264, 50'264, {}), std::size_t{0});  // begin with vectors
  CHECK_EQ(softmax(50'257, 50'265, {}), std::size_t{0});  // lie otherwise than the result's
  CHECK_EQ(softmax(50'257, 50'257, {.alignment = 8}), std::size_t{0});
}

namespace {

/// `exp(x - max)`, divided by its sum, of rows of 16-bit floats, or only the sum.
std::string softmax(std::int64_t columns, bool is_stored) {
  fusion::KernelDomain domain;
  domain.outer = {4096};
  domain.columns = columns;
  KernelGraph made(std::move(domain));
  Access access = matrix(0);
  access.outer_strides = {columns};
  access.dtype = ir::Dtype::kBfloat16;
  const Value x = made.load(std::move(access));
  const Value shifted[] = {x, made.reduce(fusion::Reduction::kMax, x)};
  const Value exponentials[] = {made.element(ElementOp::kSubtract, shifted)};
  const Value exponential = made.element(ElementOp::kExp, exponentials);
  const Value quotient[] = {exponential, made.reduce(fusion::Reduction::kSum, exponential)};
  made.store(is_stored ? made.element(ElementOp::kDivide, quotient) : quotient[1], 1, ir::Dtype::kBfloat16);
  return text_of(made);
}

}  // namespace

TEST(rows_too_long_for_registers_are_read_once_for_maximum_and_sum) {
  constexpr const char* kVectorOfRow = "read(reinterpret_cast<const Vector<Bfloat16, 8>*>(";
  CHECK_EQ(count(softmax(128'256, /*is_stored=*/false), kVectorOfRow), std::size_t{1});
  CHECK_EQ(count(softmax(128'256, /*is_stored=*/true), kVectorOfRow), std::size_t{2});
  CHECK_EQ(count(softmax(50'257, /*is_stored=*/true), "take_exponentials(v"), std::size_t{1});
  CHECK_EQ(count(softmax(1024, /*is_stored=*/true), "take_exponentials(v"), std::size_t{0});  // stays in registers
}

TEST(a_sum_of_zeros_and_one_element_of_each_row_needs_no_reduction) {
  KernelGraph made = graph();
  Access rows;
  rows.outer_strides = {1};
  rows.extent = fusion::Extent::kRows;
  rows.dtype = ir::Dtype::kInt64;
  const Value column = made.load(rows);
  rows.array = 1;
  rows.dtype = ir::Dtype::kFloat32;
  const Value zero = made.expand(made.constant(fusion::ComputeType::kFloat, 0));
  const Value scattered = made.scatter_add(zero, column, made.load(rows));
  made.store(made.reduce(fusion::Reduction::kSum, scattered), 2, ir::Dtype::kFloat32);
  CHECK_EQ(count(text_of(made), "reduce_neighbours<Sum, 1"), std::size_t{0});
  CHECK_EQ(count(text_of(made), "Sum::of("), std::size_t{0});
}

TEST(rows_with_gaps_that_end_between_vectors_are_read_by_vectors) {
  const auto copy = [](std::int64_t columns, std::int64_t stride) {
    fusion::KernelDomain domain;
    domain.outer = {64};
    domain.columns = columns;
    KernelGraph made(std::move(domain));
    Access access = matrix(0);
    access.outer_strides = {stride};
    access.dtype = ir::Dtype::kBfloat16;
    const Value x[] = {made.load(access)};
    access.array = 1;
    made.store(made.element(ElementOp::kNegate, x), std::move(access));
    return count(text_of(made), "= is_inside ? read(reinterpret_cast<const Vector<Bfloat16, 8>*>");
  };
  CHECK_EQ(copy(50'257, 50'264), std::size_t{1});
  CHECK_EQ(copy(50'257, 50'260), std::size_t{0});
  CHECK_EQ(copy(50'264, 50'264), std::size_t{0});
}

TEST(what_no_result_needs_is_not_computed) {
  KernelGraph made = graph();
  const Value x[] = {made.load(matrix(0))};
  static_cast<void>(made.reduce(fusion::Reduction::kMax, x[0]));
  made.store(made.element(ElementOp::kNegate, x), 1, ir::Dtype::kFloat32);
  CHECK_EQ(simplified(made.at()).nodes.size(), std::size_t{3});
}

TEST(parts_are_read_by_vectors_where_these_end_with_them) {
  constexpr const char* kVector = "read(reinterpret_cast<const Vector<float, 4>*>";
  CHECK_EQ(count(joined(16), kVector), std::size_t{2});
  CHECK_EQ(count(joined(18), kVector), std::size_t{0});
  CHECK_EQ(count(joined(16, {.alignment = 8}), kVector), std::size_t{0});
}

TEST(equal_loads_are_one) {
  KernelGraph several = graph();
  const Value operands[] = {several.load(matrix(0)), several.load(matrix(0))};
  const Value sum[] = {several.element(ElementOp::kMultiply, operands), several.load(matrix(1))};
  several.store(several.element(ElementOp::kAdd, sum), 2, ir::Dtype::kFloat32);
  CHECK_EQ(simplified(several.at()).nodes.size(), several.at().nodes.size() - 1);
  CHECK_EQ(count(text_of(several), "p.arrays[0]"), std::size_t{1});
}

TEST(random_numbers_of_neighbours_are_computed_together) {
  KernelGraph drawing = graph();
  drawing.store(drawing.random(0), 1, ir::Dtype::kFloat32);
  CHECK_EQ(count(text_of(drawing), "random_numbers_at(static_cast"), std::size_t{1});
  CHECK_EQ(count(text_of(drawing, {.alignment = 4}), "random_at(static_cast"), std::size_t{1});
}

TEST(sizes_of_members_of_a_batch_do_not_change_the_text) {
  const auto copy_of = [](std::int64_t elements) {
    fusion::KernelDomain domain;
    domain.columns = elements;
    domain.splits_columns = true;
    KernelGraph copy(std::move(domain));
    Access access;
    access.inner_stride = 1;
    copy.store(copy.load(access), 1, ir::Dtype::kBfloat16);
    return text_of(copy, {.is_batched = true});
  };
  CHECK_EQ(copy_of(8), copy_of(768 * 3072));
  CHECK(copy_of(8) != copy_of(7));
}

}  // namespace thunder::executors::cuda
