#include "check.h"
#include "ir/builder.h"
#include "ir/layout.h"

namespace thunder::ir {
namespace {

TensorType strided(Dims sizes, Dims strides) {
  TensorType type = std::get<TensorType>(*tensor_type(Dtype::kFloat32, std::move(sizes)));
  type.strides = std::move(strides);
  return type;
}

const Dim kRows = Dim::symbol(0, 6);

}  // namespace

TEST(a_transposed_tensor_is_dense_and_not_contiguous) {
  CHECK(is_dense(strided({2, 3}, {1, 2})));
  CHECK(!is_contiguous(strided({2, 3}, {1, 2})));
  CHECK(is_contiguous(strided({2, 3}, {3, 1})));
  CHECK(!is_dense(strided({2, 3}, {4, 1})));
  CHECK(!is_dense(strided({2, 3}, {0, 1})));
}

TEST(strides_of_one_index_mean_nothing) {
  CHECK(is_contiguous(strided({1, 3}, {17, 1})));
  CHECK(is_dense(strided({0, 3}, {3, 1})));
  CHECK(contiguous_strides({2, 0, 3}) == (Dims{3, 3, 1}));
}

TEST(layouts_hold_whatever_the_symbols_are) {
  CHECK(is_contiguous(strided({kRows, 4}, {4, 1})));
  CHECK(is_dense(strided({4, kRows}, {1, 4})));
  CHECK(is_dense(strided({kRows, 4, kRows}, {kRows * 4, kRows, 1})));
  CHECK(!is_contiguous(strided({4, kRows}, {6, 1})));  // for six rows alone
}

}  // namespace thunder::ir
