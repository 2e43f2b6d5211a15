#include "base/error.h"
#include "check.h"

TEST(internal_error_names_the_layer) {
  const thunder::InternalError error("passes/dce", "no such value");
  CHECK_EQ(error.where(), "passes/dce");
  CHECK_EQ(std::string(error.what()), "passes/dce: no such value");
}

TEST(check_throws_only_when_the_condition_fails) {
  CHECK_THROWS([] { THUNDER_CHECK(1 > 2, "base", "one is less"); }(), thunder::InternalError);
  THUNDER_CHECK(2 > 1, "base", "never evaluated");
}
