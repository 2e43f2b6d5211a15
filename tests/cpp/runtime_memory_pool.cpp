#include <ATen/ATen.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "check.h"
#include "runtime/memory_pool.h"

using thunder::runtime::pool_statistics;
using thunder::runtime::PoolScope;
using thunder::runtime::PoolUser;

namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20U;
constexpr std::size_t mebibytes(std::size_t count) { return count * kMebibyte; }

at::Tensor bytes(std::int64_t count) { return at::empty({count}, at::kByte); }
at::Tensor pooled_bytes(std::int64_t count) {
  const PoolScope scope;
  return bytes(count);
}

TEST(memory_is_taken_again) {
  const PoolUser user;
  const void* first = pooled_bytes(8 * kMebibyte).data_ptr();
  CHECK_EQ(pool_statistics().cached, mebibytes(8));
  CHECK(pooled_bytes(8 * kMebibyte - 100).data_ptr() == first);
  // Too small a part of the block.
  CHECK(pooled_bytes(4 * kMebibyte).data_ptr() != first);
}

TEST(only_large_tensors_of_the_scope) {
  const PoolUser user;
  const at::Tensor outside = bytes(8 * kMebibyte);
  const at::Tensor small = pooled_bytes(100);
  CHECK_EQ(pool_statistics().live, 0U);
  const at::Tensor large = pooled_bytes(2 * kMebibyte);
  CHECK_EQ(pool_statistics().live, mebibytes(2));
}

TEST(never_more_than_was_needed_at_one_time) {
  const PoolUser user;
  const std::size_t before = pool_statistics().peak;
  for (std::int64_t size = 64; size >= 16; size -= 16) pooled_bytes(size * kMebibyte);
  const auto after = pool_statistics();
  CHECK_EQ(after.peak, std::max(before, mebibytes(64)));
  CHECK(after.live + after.cached <= after.peak);
}

TEST(unused_memory_goes_back) {
  const PoolUser user;
  pooled_bytes(8 * kMebibyte);
  for (int i = 0; i < 200; ++i) const PoolScope run;
  CHECK_EQ(pool_statistics().cached, 0U);
}

TEST(last_user_empties_the_pool) {
  at::Tensor kept;
  {
    const PoolUser user;
    kept = pooled_bytes(8 * kMebibyte);
    pooled_bytes(2 * kMebibyte);
    CHECK(pool_statistics().cached != 0);
  }
  CHECK_EQ(pool_statistics().cached, 0U);
  CHECK_EQ(pool_statistics().live, mebibytes(8));
  kept.fill_(3);
  CHECK_EQ(kept.sum().item<std::int64_t>(), 3 * 8 * kMebibyte);
  kept = at::Tensor();
  CHECK_EQ(pool_statistics().live, 0U);
}

TEST(threads_give_back_what_others_took) {
  const PoolUser user;
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 4; ++i) tensors.push_back(pooled_bytes(2 * kMebibyte));
  std::vector<std::thread> threads;
  for (at::Tensor& tensor : tensors) {
    threads.emplace_back([&tensor] {
      tensor = at::Tensor();
      for (int i = 0; i < 100; ++i) pooled_bytes(2 * kMebibyte).fill_(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(pool_statistics().live, 0U);
}

TEST(forked_process_has_a_pool) {
  const PoolUser user;
  const at::Tensor from_parent = pooled_bytes(2 * kMebibyte);
  const pid_t child = fork();
  if (child == 0) {
    pooled_bytes(4 * kMebibyte);
    _exit(pool_statistics().live == mebibytes(2) ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
}

TEST(storage_that_shrinks_and_grows) {
  const PoolUser user;
  at::Tensor tensor = pooled_bytes(2 * kMebibyte);
  tensor.fill_(7);
  tensor.resize_({4 * kMebibyte});
  CHECK_EQ(tensor[0].item<int>(), 7);
  CHECK_EQ(pool_statistics().live, 0U);  // grown outside of the scope
}

}  // namespace
