#include "check.h"
#include "passes/max_flow.h"

namespace thunder::passes {

TEST(flow_is_the_width_of_the_narrowest_cut) {
  MaxFlow flow(4);
  flow.add_edge(0, 1, 3);
  flow.add_edge(0, 2, 2);
  flow.add_edge(1, 2, 5);
  flow.add_edge(1, 3, 2);
  flow.add_edge(2, 3, 3);
  CHECK_EQ(flow.run(0, 3), std::int64_t{5});
}

TEST(flow_goes_back_where_a_path_was_chosen_badly) {
  MaxFlow flow(6);
  for (const auto& [from, to] : {std::pair{0U, 1U}, {0U, 2U}, {1U, 3U}, {1U, 4U}, {2U, 3U}, {3U, 5U}, {4U, 5U}}) {
    flow.add_edge(from, to, 1);
  }
  CHECK_EQ(flow.run(0, 5), std::int64_t{2});
}

TEST(of_equal_cuts_the_one_nearest_to_the_sink_counts) {
  MaxFlow flow(4);
  for (std::uint32_t i = 0; i < 3; ++i) flow.add_edge(i, i + 1, 1);
  flow.run(0, 3);
  CHECK(flow.sink_side(3) == (std::vector<bool>{false, false, false, true}));
}

TEST(nothing_flows_between_what_is_not_connected) {
  MaxFlow flow(3);
  flow.add_edge(0, 1, MaxFlow::kInfinite);
  CHECK_EQ(flow.run(0, 2), std::int64_t{0});
}

}  // namespace thunder::passes
