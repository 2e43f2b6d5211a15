#include <string>

#include "check.h"
#include "executors/cuda_kernels/equal_loads.h"
#include "executors/cuda_kernels/kernel_source.h"
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

}  // namespace

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
  CHECK_EQ(with_loads_once(several.at()).nodes.size(), several.at().nodes.size() - 1);
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
