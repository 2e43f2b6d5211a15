#include "passes/max_flow.h"

#include <algorithm>
#include <limits>

namespace thunder::passes {
namespace {

constexpr std::uint32_t kUnreached = std::numeric_limits<std::uint32_t>::max();

}  // namespace

void MaxFlow::add_edge(std::uint32_t from, std::uint32_t to, std::int64_t capacity) {
  edges_of_[from].push_back(static_cast<std::uint32_t>(edges_.size()));
  edges_.push_back({to, capacity});
  edges_of_[to].push_back(static_cast<std::uint32_t>(edges_.size()));
  edges_.push_back({from, 0});
}

bool MaxFlow::find_levels(std::uint32_t source, std::uint32_t sink) {
  levels_.assign(edges_of_.size(), kUnreached);
  levels_[source] = 0;
  std::vector<std::uint32_t> queue{source};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const std::uint32_t index : edges_of_[queue[i]]) {
      const Edge& edge = edges_[index];
      if (edge.capacity == 0 || levels_[edge.to] != kUnreached) continue;
      levels_[edge.to] = levels_[queue[i]] + 1;
      queue.push_back(edge.to);
    }
  }
  return levels_[sink] != kUnreached;
}

/// Sends what one more path can take; without recursion, as paths are as long as programs.
std::int64_t MaxFlow::push_path(std::uint32_t source, std::uint32_t sink) {
  std::vector<std::uint32_t> path;
  std::uint32_t node = source;
  while (node != sink) {
    std::uint32_t& next = next_edge_[node];
    while (next < edges_of_[node].size()) {
      const Edge& edge = edges_[edges_of_[node][next]];
      if (edge.capacity > 0 && levels_[edge.to] == levels_[node] + 1) break;
      ++next;
    }
    if (next < edges_of_[node].size()) {
      path.push_back(edges_of_[node][next]);
      node = edges_[path.back()].to;
      continue;
    }
    if (path.empty()) return 0;
    node = edges_[path.back() ^ 1U].to;
    path.pop_back();
    ++next_edge_[node];
  }
  std::int64_t flow = kInfinite;
  for (const std::uint32_t index : path) flow = std::min(flow, edges_[index].capacity);
  for (const std::uint32_t index : path) {
    edges_[index].capacity -= flow;
    edges_[index ^ 1U].capacity += flow;
  }
  return flow;
}

std::int64_t MaxFlow::run(std::uint32_t source, std::uint32_t sink) {
  std::int64_t total = 0;
  while (find_levels(source, sink)) {
    next_edge_.assign(edges_of_.size(), 0);
    while (const std::int64_t flow = push_path(source, sink)) total += flow;
  }
  return total;
}

std::vector<bool> MaxFlow::sink_side(std::uint32_t sink) const {
  std::vector<bool> reaches(edges_of_.size(), false);
  reaches[sink] = true;
  std::vector<std::uint32_t> queue{sink};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const std::uint32_t index : edges_of_[queue[i]]) {
      const std::uint32_t before = edges_[index].to;
      if (edges_[index ^ 1U].capacity == 0 || reaches[before]) continue;
      reaches[before] = true;
      queue.push_back(before);
    }
  }
  return reaches;
}

}  // namespace thunder::passes
