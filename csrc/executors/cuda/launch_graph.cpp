#include "executors/cuda/launch_graph.h"

#include <algorithm>
#include <cstring>

namespace thunder::executors::cuda {

bool LaunchGraph::launch(std::span<const Function> functions, Driver::Handle stream, const LaunchOne& launch_one) {
  // A recording takes as long as several launches of each kernel.
  constexpr std::size_t kMostRecordings = 8;
  constexpr std::size_t kLaunchesForEach = 16;
  if (nodes_.size() != functions.size()) {
    forget();
    nodes_.resize(functions.size());
    return false;
  }
  if (executable_ == nullptr) {
    if (recordings_ >= kMostRecordings + launches_ / kLaunchesForEach) return false;
    ++recordings_;
    if (!record(functions, launch_one)) {
      forget();
      recordings_ = static_cast<std::size_t>(-1);  // this driver records otherwise
      return false;
    }
  }
  for (std::size_t i = 0; i < functions.size(); ++i) update(nodes_[i], functions[i]);
  driver_.check(driver_.launch_graph(executable_, stream), "launching kernels together");
  ++launches_;
  return true;
}

void LaunchGraph::forget() {
  if (executable_ != nullptr) static_cast<void>(driver_.destroy_executable(executable_));
  if (graph_ != nullptr) static_cast<void>(driver_.destroy_graph(graph_));
  executable_ = graph_ = nullptr;
  nodes_.clear();
}

bool LaunchGraph::record(std::span<const Function> functions, const LaunchOne& launch_one) {
  constexpr unsigned kNonBlocking = 1;
  constexpr int kRelaxed = 2;
  Driver::Handle stream = nullptr;
  if (driver_.create_stream(&stream, kNonBlocking) != 0) return false;
  struct Guard {
    const Driver& driver;
    Driver::Handle stream;
    ~Guard() { static_cast<void>(driver.destroy_stream(stream)); }
  } const guard{driver_, stream};
  if (driver_.begin_capture(stream, kRelaxed) != 0) return false;
  const bool is_launched =
      std::ranges::all_of(functions, [&](const Function& each) { return launch_one(each, stream) == 0; });
  const bool is_captured = driver_.end_capture(stream, &graph_) == 0 && graph_ != nullptr;
  return is_launched && is_captured && find_nodes(functions) && driver_.instantiate(&executable_, graph_, 0) == 0;
}

bool LaunchGraph::find_nodes(std::span<const Function> functions) {
  std::vector<Driver::Handle> found(functions.size());
  std::size_t count = 0;
  if (driver_.nodes(graph_, nullptr, &count) != 0 || count != functions.size()) return false;
  if (driver_.nodes(graph_, found.data(), &count) != 0) return false;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const Function& function = functions[i];
    NodeParameters parameters;
    if (driver_.parameters(found[i], &parameters) != 0 || parameters.arguments == nullptr) return false;
    const bool is_it = parameters.grid[0] == function.grid && parameters.block[0] == function.threads &&
                       (parameters.function == nullptr || parameters.function == function.handle) &&
                       std::memcmp(parameters.arguments[0], function.argument.data(), function.argument.size()) == 0;
    if (!is_it) return false;
    nodes_[i] = {found[i],
                 function.handle,
                 function.grid,
                 function.threads,
                 {function.argument.begin(), function.argument.end()}};
  }
  return true;
}

void LaunchGraph::update(Node& node, const Function& function) {
  const bool is_same = node.function == function.handle && node.grid == function.grid &&
                       node.threads == function.threads && std::ranges::equal(node.argument, function.argument);
  if (is_same) return;
  void* argument = const_cast<std::byte*>(function.argument.data());
  NodeParameters parameters;
  parameters.function = function.handle;
  parameters.grid[0] = function.grid;
  parameters.block[0] = function.threads;
  parameters.arguments = &argument;
  driver_.check(driver_.set_parameters(executable_, node.handle, &parameters), "changing the arguments of a kernel");
  node.function = function.handle;
  node.grid = function.grid;
  node.threads = function.threads;
  node.argument.assign(function.argument.begin(), function.argument.end());
}

}  // namespace thunder::executors::cuda
