#include <ATen/ATen.h>

#include <array>
#include <memory>
#include <optional>

#include "check.h"
#include "executors/cpu/packed_weight.h"

using thunder::executors::cpu::PackedWeight;
using thunder::executors::cpu::WeightGuard;

namespace {

/// Packs weights, and knows whether anybody still holds the last packed one.
struct Packer {
  int count = 0;
  c10::weak_intrusive_ptr<c10::TensorImpl> last{c10::intrusive_ptr<c10::TensorImpl>()};

  std::optional<at::Tensor> operator()(PackedWeight& packed, const at::Tensor& weight) {
    return packed.of(weight, [&](const at::Tensor& tensor) {
      ++count;
      at::Tensor result = tensor.clone();
      last = c10::weak_intrusive_ptr<c10::TensorImpl>(result.getIntrusivePtr());
      return result;
    });
  }
};

}  // namespace

TEST(a_weight_is_packed_when_it_is_seen_again) {
  Packer pack;
  PackedWeight packed(WeightGuard::kVersion, "layout");
  const at::Tensor weight = at::randn({8, 8});
  CHECK(!pack(packed, weight));
  for (int i = 0; i < 3; ++i) CHECK(at::equal(pack(packed, weight).value(), weight));
  CHECK_EQ(pack.count, 1);
  weight.add_(1);
  CHECK(!pack(packed, weight));
  CHECK(at::equal(pack(packed, weight).value(), weight));
  CHECK_EQ(pack.count, 2);
}

TEST(only_bytes_tell_of_writes_past_the_version) {
  for (const WeightGuard guard : {WeightGuard::kBytes, WeightGuard::kVersion}) {
    Packer pack;
    PackedWeight packed(guard, "layout");
    const at::Tensor weight = at::randn({8, 8});
    CHECK(!pack(packed, weight));
    CHECK(pack(packed, weight));
    weight.mutable_data_ptr<float>()[5] += 1;
    CHECK(pack(packed, weight));
    CHECK_EQ(pack.count, guard == WeightGuard::kBytes ? 2 : 1);
  }
}

TEST(other_memory_at_the_same_place_is_another_weight) {
  Packer pack;
  PackedWeight packed(WeightGuard::kVersion, "layout");
  std::array<float, 4> values = {1, 2, 3, 4};
  const auto make = [&] { return at::from_blob(values.data(), {2, 2}, at::kFloat); };
  const at::Tensor weight = make();
  CHECK(!pack(packed, weight));
  CHECK(pack(packed, weight));
  weight.unsafeGetTensorImpl()->shallow_copy_from(make().getIntrusivePtr());  // as setting `.data` does
  CHECK(!pack(packed, weight));
}

TEST(those_of_one_layout_share_what_is_packed) {
  Packer pack;
  const at::Tensor weight = at::randn({8, 8});
  PackedWeight first(WeightGuard::kVersion, "layout");
  PackedWeight second(WeightGuard::kVersion, "layout");
  PackedWeight other(WeightGuard::kVersion, "another layout");
  CHECK(!pack(first, weight));
  CHECK(pack(first, weight));
  CHECK(pack(second, weight));
  CHECK_EQ(pack.count, 1);
  CHECK(!pack(other, weight));
}

TEST(what_is_packed_dies_with_who_uses_it) {
  Packer pack;
  const at::Tensor weight = at::randn({8, 8});
  auto packed = std::make_unique<PackedWeight>(WeightGuard::kVersion, "layout");
  CHECK(!pack(*packed, weight));
  CHECK(pack(*packed, weight));
  CHECK(!pack.last.expired());
  packed.reset();
  CHECK(pack.last.expired());
}

TEST(what_is_packed_dies_with_the_weight_when_another_one_is_seen) {
  Packer pack;
  at::Tensor weight = at::randn({8, 8});
  PackedWeight packed(WeightGuard::kVersion, "layout");
  CHECK(!pack(packed, weight));
  CHECK(pack(packed, weight));
  weight.reset();
  CHECK(!pack.last.expired());
  PackedWeight another(WeightGuard::kVersion, "layout");
  CHECK(!pack(another, at::randn({8, 8})));
  CHECK(pack.last.expired());
}
