#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace thunder {

/// Calls `function(i)` for every i below `count` on the worker threads and the calling one; returns when all are done.
/// The first exception is rethrown; calls that had not begun are left out then.
void parallel_for(std::size_t count, const std::function<void(std::size_t)>& function);

/// Tasks with dependencies, run on the worker threads and the calling one. Whoever holds the GIL releases it before
/// `run` if a task may want it.
class TaskGraph {
 public:
  enum class TaskId : std::size_t {};

  TaskGraph();
  ~TaskGraph();
  TaskGraph(TaskGraph&&) noexcept;
  TaskGraph& operator=(TaskGraph&&) noexcept;

  /// `work` runs after the tasks in `after`, which were added before it: so there are no cycles.
  TaskId add(std::function<void()> work, const std::vector<TaskId>& after = {});

  /// Runs all tasks once. The first exception is rethrown when the running ones are done; the others never begin.
  void run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace thunder
