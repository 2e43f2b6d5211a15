#include <ATen/Parallel.h>

#include "check.h"
#include "runtime/thread_width.h"

using thunder::runtime::ThreadWidth;

namespace {

TEST(one_thread_until_it_dies) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  {
    ThreadWidth width;
    CHECK_EQ(at::get_num_threads(), 2);
    width.narrow(true);
    width.narrow(true);
    CHECK_EQ(at::get_num_threads(), 1);
    width.narrow(false);
    CHECK_EQ(at::get_num_threads(), 2);
    width.narrow(true);
  }
  CHECK_EQ(at::get_num_threads(), 2);
  at::set_num_threads(before);
}

}  // namespace
