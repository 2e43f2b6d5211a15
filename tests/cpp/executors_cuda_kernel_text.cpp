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

/// Two parts of each row, the first of which has so many columns.
std::string joined(std::int64_t columns, const LaunchFacts& facts = {}) {
  KernelGraph joining = graph();
  Access access;
  access.parts = {{0, {{0, kRows, columns}}, {0, 1, 0}, {0, columns, 1}},
                  {1, {{0, kRows, kColumns - columns}}, {0, 1, 0}, {columns, kColumns, 1}}};
  joining.store(joining.assemble(std::move(access), std::nullopt), 2, ir::Dtype::kFloat32);
  return text_of(joining, facts);
}

/// A graph over so many rows of columns that are next to one another.
KernelGraph rows_of(std::int64_t rows, std::int64_t columns) {
  fusion::KernelDomain domain;
  domain.outer = {rows};
  domain.columns = columns;
  return KernelGraph(std::move(domain));
}

/// An array of 16-bit floats whose rows begin so far apart.
Access narrow_matrix(std::uint32_t array, std::int64_t stride) {
  Access access = matrix(array);
  access.outer_strides = {stride};
  access.dtype = ir::Dtype::kBfloat16;
  return access;
}

/// Two sums over `rows` rows of `columns` columns of 16-bit floats, of arrays 0 and 1, besides a value for each
/// element.
KernelGraph column_sums(std::int64_t rows, std::int64_t columns) {
  KernelGraph made = rows_of(rows, columns);
  const auto load = [&](std::uint32_t array) {
    Access access = narrow_matrix(array, columns);
    return made.load(std::move(access));
  };
  const Value operands[] = {load(0), load(1)};
  made.column_sum(operands[0], 2, ir::Dtype::kFloat32, {});
  made.column_sum(made.element(ElementOp::kMultiply, operands), 3, ir::Dtype::kFloat32, {});
  return made;
}

/// Rows of matrix 0, of 16-bit floats, times one row, array 1.
KernelGraph row_product(std::int64_t columns) {
  KernelGraph made = rows_of(256, columns);
  const auto load = [&](std::uint32_t array, std::int64_t stride) {
    Access access = narrow_matrix(array, stride);
    return made.load(std::move(access));
  };
  const Value operands[] = {load(0, columns), load(1, 0)};
  made.store(made.reduce(fusion::Reduction::kSum, made.element(ElementOp::kMultiply, operands)), 2,
             ir::Dtype::kBfloat16);
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
    KernelGraph made = rows_of(4096, columns);
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
    KernelGraph made = rows_of(64, columns);
    Access access = narrow_matrix(0, stride);
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

TEST(a_kernel_waits_for_the_one_before_it_in_front_of_what_it_reads_and_writes) {
  for (const KernelGraph& made : {row_product(2048), column_sums(1000, 256)}) {
    const KernelSource source = emit_source(made.at(), {}).value();
    std::size_t begin = source.text.find("extern \"C\"");
    for (const Launch& launch : source.launches) {
      const std::size_t wait = source.text.find("wait_for_previous();", begin);
      const std::size_t end = source.text.find("extern \"C\"", begin + 1);
      CHECK(source.text.find(launch.name + "(const Parameters p)", begin) < wait);
      CHECK(wait < source.text.find("read(", begin));
      CHECK(wait < source.text.find("] = ", begin));
      CHECK(wait < end);
      begin = end;
    }
  }
}

TEST(only_a_matrix_that_one_row_is_multiplied_with_is_prefetched) {
  const std::string text = text_of(row_product(2048));
  CHECK_EQ(count(text, ") prefetch("), std::size_t{1});
  CHECK_EQ(count(text, ") prefetch(static_cast<Bfloat16*>(p.arrays[0])"), std::size_t{1});
  CHECK(text.find(") prefetch(") < text.find("  wait_for_previous();"));
  CHECK_EQ(count(text_of(column_sums(1000, 256)), ") prefetch("), std::size_t{0});
  CHECK_EQ(count(gelu(ir::Dtype::kFloat32), ") prefetch("), std::size_t{0});
}

TEST(rows_of_as_many_vectors_as_threads_are_read_without_conditions) {
  CHECK_EQ(count(text_of(row_product(2048)), "if (first_of_vector < columns)"), std::size_t{0});
  CHECK_EQ(count(text_of(row_product(2040)), "if (first_of_vector < columns)"), std::size_t{1});
  CHECK(text_of(row_product(2048)) != text_of(row_product(2040)));
}

TEST(a_value_is_stored_in_the_row_that_an_index_chooses) {
  KernelGraph made = graph();
  Access index = matrix(1);
  index.outer_strides = {1};
  index.inner_stride = 0;
  index.extent = fusion::Extent::kRows;
  index.dtype = ir::Dtype::kInt64;
  const Value x = made.load(matrix(0));
  Access table = matrix(2);
  table.outer_strides = {0};
  table.table_rows = 100;
  table.table_stride = 64;
  made.store(x, table, made.load(index));
  const std::string text = text_of(made);
  CHECK_EQ(count(text, "if (!is_inside"), std::size_t{1});
  CHECK_EQ(count(text, "if (is_row && is_inside"), std::size_t{1});
  CHECK_EQ(count(text, "reinterpret_cast<Vector<float, 4>*>"), std::size_t{1});
  table.table_stride = 63;  // rows begin between vectors
  KernelGraph odd = graph();
  odd.store(odd.load(matrix(0)), table, odd.load(index));
  CHECK_EQ(count(text_of(odd), "reinterpret_cast<Vector<float, 4>*>"), std::size_t{0});
}

namespace {

/// `exp(x - max)`, divided by its sum, of rows of 16-bit floats, or only the sum.
std::string softmax(std::int64_t columns, bool is_stored) {
  KernelGraph made = rows_of(4096, columns);
  Access access = narrow_matrix(0, columns);
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
    KernelGraph made = rows_of(64, columns);
    Access access = narrow_matrix(0, stride);
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
