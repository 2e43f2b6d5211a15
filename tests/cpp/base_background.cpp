#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/background.h"
#include "check.h"

namespace thunder {
namespace {

void wait_for(const std::atomic<int>& number, int expected) {
  for (int now = number; now != expected; now = number) number.wait(now);
}

void set(std::atomic<int>& number, int value) {
  number = value;
  number.notify_all();
}

}  // namespace

TEST(work_runs_on_other_threads) {
  constexpr int kCount = 50;
  std::atomic<int> done = 0;
  std::atomic<int> elsewhere = 0;
  const auto self = std::this_thread::get_id();
  for (int i = 0; i < kCount; ++i) {
    run_in_background([&] {
      elsewhere += std::this_thread::get_id() != self ? 1 : 0;
      ++done;
      done.notify_all();
    });
  }
  wait_for(done, kCount);
  CHECK_EQ(elsewhere.load(), kCount);
}

TEST(a_forked_process_does_not_wait_for_threads_that_it_does_not_have) {
  std::atomic<int> state = 0;
  run_in_background([&] {
    set(state, 1);
    wait_for(state, 2);
    set(state, 3);
  });
  wait_for(state, 1);
  const pid_t child = fork();
  if (child == 0) {
    end_background_work();
    _exit(0);
  }
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  set(state, 2);
  wait_for(state, 3);
}

// The last test: no work begins after it.
TEST(the_end_waits_for_work_that_has_begun) {
  std::atomic<int> begun = 0;
  std::atomic<bool> is_done = false;
  run_in_background([&] {
    set(begun, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    is_done = true;
  });
  wait_for(begun, 1);
  end_background_work();
  CHECK(is_done.load());
  run_in_background([&] { is_done = false; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(is_done.load());
}

}  // namespace thunder
