#pragma once

#include <cstdint>
#include <vector>

namespace thunder::passes {

/// Maximum flow by Dinic's algorithm (Y. Dinitz, 1970) on a graph with integer capacities, for minimum cuts.
class MaxFlow {
 public:
  static constexpr std::int64_t kInfinite = std::int64_t{1} << 60;

  explicit MaxFlow(std::uint32_t node_count) : edges_of_(node_count) {}

  void add_edge(std::uint32_t from, std::uint32_t to, std::int64_t capacity);
  std::int64_t run(std::uint32_t source, std::uint32_t sink);
  /// After `run`: for each node whether the sink can still be reached from it. Edges that lead into this side are a
  /// minimum cut, of all the one nearest to the sink.
  [[nodiscard]] std::vector<bool> sink_side(std::uint32_t sink) const;

 private:
  struct Edge {
    std::uint32_t to;
    std::int64_t capacity;  ///< free capacity; that of the reverse edge is at `index ^ 1`
  };

  bool find_levels(std::uint32_t source, std::uint32_t sink);
  std::int64_t push_path(std::uint32_t source, std::uint32_t sink);

  std::vector<Edge> edges_;
  std::vector<std::vector<std::uint32_t>> edges_of_;
  std::vector<std::uint32_t> levels_;
  std::vector<std::uint32_t> next_edge_;
};

}  // namespace thunder::passes
