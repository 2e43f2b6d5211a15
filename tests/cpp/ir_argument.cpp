#include <limits>

#include "check.h"
#include "ir/argument.h"

namespace thunder::ir {

TEST(an_integer_of_any_width_is_an_int64) {
  CHECK(Argument(std::size_t{3}).is<std::int64_t>());
  CHECK(Argument(3).is<std::int64_t>());
  CHECK(Argument(std::uint8_t{3}).is<std::int64_t>());
  CHECK(Argument(true).is<bool>());
}

TEST(identical_tells_signed_zeros_apart_and_finds_nan_equal) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(!identical(Argument(0.0), Argument(-0.0)));
  CHECK(identical(Argument(nan), Argument(nan)));
  CHECK(identical(ArgumentList{1, nan}, ArgumentList{1, nan}));
  CHECK_EQ(hash_value(Argument(nan)), hash_value(Argument(nan)));
}

TEST(identical_tells_a_bool_from_an_integer_and_an_integer_from_a_float) {
  CHECK(!identical(Argument(true), Argument(1)));
  CHECK(!identical(Argument(1), Argument(1.0)));
  CHECK(hash_value(Argument(1)) != hash_value(Argument(1.0)));
}

TEST(for_each_value_looks_into_nested_lists_in_order) {
  const Argument argument = ArgumentList{ValueId{4}, ArgumentList{ValueId{2}, 7}, None{}};
  std::string seen;
  for_each_value(argument, [&](ValueId id) { seen += std::to_string(index_of(id)) + " "; });
  CHECK_EQ(seen, "4 2 ");
}

}  // namespace thunder::ir
