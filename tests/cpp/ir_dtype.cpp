#include "check.h"
#include "ir/dtype.h"

namespace thunder::ir {

TEST(names_follow_the_table) {
  CHECK_EQ(torch_name(Dtype::kBfloat16), "bfloat16");
  CHECK_EQ(short_name(Dtype::kBfloat16), "bf16");
  CHECK_EQ(size_of(Dtype::kComplex128), 16);
}

TEST(floating_point_includes_float8_and_excludes_complex) {
  CHECK(is_floating_point(Dtype::kFloat8E4m3fn));
  CHECK(is_floating_point(Dtype::kBfloat16));
  CHECK(!is_floating_point(Dtype::kComplex64));
  CHECK(!is_floating_point(Dtype::kBool));
  CHECK(is_complex(Dtype::kComplex32));
  CHECK(!is_complex(Dtype::kFloat64));
}

TEST(layouts_and_memory_formats_are_named_as_in_torch) {
  CHECK_EQ(torch_name(Layout::kSparse), "sparse_coo");
  CHECK_EQ(torch_name(Layout::kMkldnn), "_mkldnn");
  CHECK_EQ(torch_name(MemoryFormat::kPreserve), "preserve_format");
  CHECK_EQ(torch_name(DeviceType::kCuda), "cuda");
}

}  // namespace thunder::ir
