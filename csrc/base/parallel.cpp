#include "base/parallel.h"

#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <utility>
#include <vector>

#include "base/error.h"

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
#endif

namespace thunder {
namespace {

/// Tells ThreadSanitizer, which does not see into TBB's library, that what came before `give` is seen after `take`.
class Handover {
 public:
#ifdef __SANITIZE_THREAD__
  void give() { __tsan_release(this); }
  void take() { __tsan_acquire(this); }
#else
  void give() {}
  void take() {}
#endif
};

}  // namespace

struct TaskGraph::State {
  struct Task {
    std::function<void()> work;
    std::vector<std::size_t> successors;
    std::size_t dependencies = 0;
    std::atomic<std::size_t> waiting_for = 0;
  };

  void spawn(std::size_t index) {
    begin.give();
    group.run([this, index] {
      begin.take();
      Task& task = tasks[index];
      task.work();
      for (const std::size_t successor : task.successors) {
        if (tasks[successor].waiting_for.fetch_sub(1, std::memory_order_acq_rel) == 1) spawn(successor);
      }
      end.give();
    });
  }

  std::deque<Task> tasks;  // a task does not move
  tbb::task_group group;
  Handover begin, end;
};

TaskGraph::TaskGraph() : state_(std::make_unique<State>()) {}
TaskGraph::~TaskGraph() = default;
TaskGraph::TaskGraph(TaskGraph&&) noexcept = default;
TaskGraph& TaskGraph::operator=(TaskGraph&&) noexcept = default;

TaskGraph::TaskId TaskGraph::add(std::function<void()> work, const std::vector<TaskId>& after) {
  const std::size_t index = state_->tasks.size();
  for (const TaskId id : after) {
    THUNDER_CHECK(static_cast<std::size_t>(id) < index, "base/parallel", "a task can only wait for an earlier one");
    state_->tasks[static_cast<std::size_t>(id)].successors.push_back(index);
  }
  State::Task& task = state_->tasks.emplace_back();
  task.work = std::move(work);
  task.dependencies = after.size();
  return TaskId{index};
}

void TaskGraph::run() {
  for (State::Task& task : state_->tasks) task.waiting_for.store(task.dependencies, std::memory_order_relaxed);
  for (std::size_t i = 0; i < state_->tasks.size(); ++i) {
    if (state_->tasks[i].dependencies == 0) state_->spawn(i);
  }
  state_->group.wait();
  state_->end.take();
}

void parallel_for(std::size_t count, const std::function<void(std::size_t)>& function) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) function(i);
    } catch (...) {
      next = count;
      throw;
    }
  };
  TaskGraph tasks;
  const auto workers = static_cast<std::size_t>(tbb::this_task_arena::max_concurrency());
  for (std::size_t i = 0; i < std::min(count, workers); ++i) tasks.add(work);
  tasks.run();
}

}  // namespace thunder
