#include <ATen/ATen.h>

#include <array>
#include <set>

#include "base/philox.h"
#include "bridge/counted_dropout.h"
#include "check.h"

namespace thunder::bridge {

TEST(numbers_are_those_of_the_reference_implementation) {
  // Known answers of Random123, for counters and keys of zeros and of ones.
  CHECK((philox::numbers_at(0, 0, 0) == std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint64_t kOnes = ~std::uint64_t{0};
  CHECK((philox::numbers_at(kOnes, kOnes, kOnes) ==
         std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(each_number_is_drawn_for_one_element) {
  for (const std::int64_t width : {1, 2, 4, 8}) {
    std::set<std::array<std::int64_t, 3>> places;
    for (std::int64_t i = 0; i < 5000; ++i) {
      const philox::Place place = philox::place_of(i, 256, width);
      places.insert({place.thread, place.call, place.lane});
    }
    CHECK_EQ(places.size(), std::size_t{5000});
  }
}

TEST(masks_by_operations_are_those_by_element) {
  for (const std::int64_t width : {1, 2, 4, 8}) {
    const at::Tensor state = at::tensor({INT64_C(-123456789), INT64_C(1) << 40U, INT64_C(256), width}, at::kLong);
    const at::Tensor mask = dropout_mask(state, {50, 101}, {1, 50}, 0.3);
    CHECK(at::equal(mask, dropout_mask_by_operations(state, {50, 101}, {1, 50}, 0.3)));
    const auto share = mask.to(at::kDouble).mean().item<double>();
    CHECK(share > 0.66 && share < 0.74);
  }
}

}  // namespace thunder::bridge
