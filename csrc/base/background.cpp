#include "base/background.h"

#include <oneapi/tbb/task_arena.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <utility>

#ifdef __SANITIZE_THREAD__
extern "C" void AnnotateIgnoreWritesBegin(const char* file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char* file, int line);
#endif

namespace thunder {
namespace {

/// Processors that are left to the thread that calls, and to that of autograd.
constexpr int kLeft = 2;

/// ThreadSanitizer does not see into TBB's library, which hands over the memory of tasks.
class UnseenByThreadSanitizer {
 public:
  UnseenByThreadSanitizer() {
#ifdef __SANITIZE_THREAD__
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
  }
  ~UnseenByThreadSanitizer() {
#ifdef __SANITIZE_THREAD__
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
#endif
  }
  UnseenByThreadSanitizer(const UnseenByThreadSanitizer&) = delete;
  UnseenByThreadSanitizer& operator=(const UnseenByThreadSanitizer&) = delete;
};

class Background {
 public:
  Background()
      : arena_(std::max(1, tbb::this_task_arena::max_concurrency() - kLeft), /*reserved_for_masters=*/0,
               tbb::task_arena::priority::low) {}

  void run(std::function<void()> work);
  void end();

  // Around a fork, whose child has no worker threads.
  void before_fork() { mutex_.lock(); }
  void in_parent() { mutex_.unlock(); }
  void in_child() {
    running_ = 0;
    mutex_.unlock();
  }

 private:
  void run_next();

  tbb::task_arena arena_;
  std::mutex mutex_;
  std::condition_variable is_done_;
  std::deque<std::function<void()>> queue_;
  int running_ = 0;
  bool ends_ = false;
};

/// It outlives the objects of other libraries, whose destructors may end work.
Background& background() {
  static auto* const kBackground = [] {
    static_cast<void>(std::atexit(&end_background_work));
    pthread_atfork([] { background().before_fork(); }, [] { background().in_parent(); },
                   [] { background().in_child(); });
    return new Background;
  }();
  return *kBackground;
}

void Background::run(std::function<void()> work) {
  {
    const std::scoped_lock lock(mutex_);
    if (ends_) return;
    queue_.push_back(std::move(work));
  }
  // Each task takes one piece of work, which comes through the mutex.
  const UnseenByThreadSanitizer unseen;
  arena_.enqueue([] { background().run_next(); });
}

void Background::run_next() {
  std::function<void()> work;
  {
    const std::scoped_lock lock(mutex_);
    if (queue_.empty()) return;
    work = std::move(queue_.front());
    queue_.pop_front();
    ++running_;
  }
  work();
  const std::scoped_lock lock(mutex_);
  --running_;
  is_done_.notify_all();
}

void Background::end() {
  std::unique_lock lock(mutex_);
  ends_ = true;
  queue_.clear();
  is_done_.wait(lock, [&] { return running_ == 0; });
}

}  // namespace

void run_in_background(std::function<void()> work) { background().run(std::move(work)); }

void end_background_work() { background().end(); }

}  // namespace thunder
