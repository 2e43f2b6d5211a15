#include <atomic>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "check.h"

namespace thunder {

TEST(parallel_for_calls_each_index_once) {
  std::vector<std::atomic<int>> calls(1000);
  parallel_for(calls.size(), [&](std::size_t i) { ++calls[i]; });
  for (const std::atomic<int>& count : calls) CHECK_EQ(count.load(), 1);
  parallel_for(0, [&](std::size_t) { throw std::runtime_error("never called"); });
}

TEST(parallel_for_rethrows) {
  const auto fail = [](std::size_t i) {
    if (i == 7) throw std::runtime_error("seven");
  };
  CHECK_THROWS((parallel_for(100, fail), 0), std::runtime_error);
}

TEST(a_task_runs_after_those_it_waits_for) {
  for (int repetition = 0; repetition < 100; ++repetition) {
    std::atomic<int> clock = 0;
    int left = 0;
    int right = 0;
    int last = 0;
    TaskGraph graph;
    const auto first = graph.add([&] { ++clock; });
    const auto a = graph.add([&] { left = ++clock; }, {first});
    const auto b = graph.add([&] { right = ++clock; }, {first});
    graph.add([&] { last = ++clock; }, {a, b});
    graph.run();
    CHECK(left > 1 && right > 1);
    CHECK_EQ(last, 4);
  }
}

TEST(a_failed_task_stops_what_waits_for_it) {
  bool ran = false;
  TaskGraph graph;
  const auto first = graph.add([] { throw UserError(ErrorKind::kValue, "no"); });
  graph.add([&] { ran = true; }, {first});
  CHECK_THROWS((graph.run(), 0), UserError);
  CHECK(!ran);
}

TEST(a_task_waits_for_earlier_ones_only) {
  TaskGraph graph;
  CHECK_THROWS(graph.add([] {}, {TaskGraph::TaskId{0}}), InternalError);
}

TEST(an_empty_graph_runs) { TaskGraph().run(); }

}  // namespace thunder
