#include "check.h"
#include "ir/builder.h"
#include "ir/type.h"

namespace thunder::ir {
namespace {

const TensorType& tensor(const TypePtr& type) { return std::get<TensorType>(*type); }

}  // namespace

TEST(a_tensor_shows_device_dtype_and_sizes) {
  CHECK_EQ(to_string(*tensor_type(Dtype::kFloat32, {2, 16})), "cpu f32[2, 16]");
  CHECK_EQ(to_string(*tensor_type(Dtype::kBool, {}, {DeviceType::kCuda, 1})), "cuda:1 b8[]");
}

TEST(a_symbolic_dimension_shows_its_symbol) {
  CHECK_EQ(to_string(*tensor_type(Dtype::kInt64, {Dim::symbol(2, 7), 3})), "cpu i64[s2, 3]");
}

TEST(a_sparse_tensor_shows_its_layout) {
  TensorType type;
  type.layout = Layout::kSparseCsr;
  type.sizes = {3, 3};
  CHECK_EQ(to_string(Type(type)), "cpu sparse_csr f32[3, 3]");
}

TEST(what_is_no_tensor_shows_its_python_type) {
  CHECK_EQ(to_string(Type(ScalarKind::kInt)), "int");
  CHECK_EQ(to_string(Type(ObjectType{"LlamaForCausalLM"})), "object LlamaForCausalLM");
}

TEST(equal_types_hash_alike_and_a_stride_tells_them_apart) {
  const TypePtr left = tensor_type(Dtype::kFloat32, {2, 3});
  TensorType transposed = tensor(left);
  CHECK_EQ(hash_value(tensor(left)), hash_value(transposed));
  transposed.strides = {1, 2};
  CHECK(hash_value(tensor(left)) != hash_value(transposed));
}

}  // namespace thunder::ir
