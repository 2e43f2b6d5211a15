#include "base/background.h"

#include <oneapi/tbb/task_arena.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>

namespace thunder {
namespace {

/// Processors that are left to the thread that calls, and to that of autograd.
constexpr int kLeft = 2;

class Background {
 public:
  Background()
      : arena_(std::max(1, tbb::this_task_arena::max_concurrency() - kLeft), /*reserved_for_masters=*/0,
               tbb::task_arena::priority::low) {}

  void run(std::function<void()> work) {
    // ThreadSanitizer does not see into TBB's library: the counter says that what came before is seen by the task.
    ++queued_;
    arena_.enqueue([this, work = std::move(work)] {
      --queued_;
      ++running_;
      if (!ends_) work();
      --running_;
      running_.notify_all();
    });
  }

  void end() {
    ends_ = true;
    for (int running = running_; running != 0; running = running_) running_.wait(running);
  }

  /// The threads of the parent are not in the child.
  void forget_threads() { running_ = 0; }

 private:
  tbb::task_arena arena_;
  std::atomic<int> queued_ = 0;
  std::atomic<int> running_ = 0;
  std::atomic<bool> ends_ = false;
};

/// It outlives the objects of other libraries, whose destructors may end work.
Background& background() {
  static auto* const kBackground = [] {
    static_cast<void>(std::atexit(&end_background_work));
    pthread_atfork(nullptr, nullptr, [] { background().forget_threads(); });
    return new Background;
  }();
  return *kBackground;
}

}  // namespace

void run_in_background(std::function<void()> work) { background().run(std::move(work)); }

void end_background_work() { background().end(); }

}  // namespace thunder
