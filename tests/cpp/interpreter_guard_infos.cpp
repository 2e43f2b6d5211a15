#include "check.h"
#include "interpreter/guards/guard_infos.h"

using thunder::interpreter::GuardInfo;
using thunder::interpreter::GuardInfos;

TEST(infos_come_back_as_they_were_added) {
  const std::string file = "model.py";
  std::vector<GuardInfo> added;
  for (int i = 0; i < 100; ++i) {
    const std::string layer = "self.layers[" + std::to_string(i / 3) + "]";
    added.push_back({i % 3 == 0 ? layer : layer + ".weight",
                     i % 2 == 0 ? "f32[2]" : "f32[" + std::to_string(i) + "]",
                     {i % 5 == 0 ? nullptr : &file, i - 50}});
  }
  added.push_back({"", "", {}});
  GuardInfos infos;
  for (std::uint32_t i = 0; i < added.size(); ++i) CHECK_EQ(infos.add(added[i]), i);
  infos.finish();
  CHECK_EQ(infos.size(), added.size());
  for (std::size_t i = 0; i < added.size(); ++i) {
    const GuardInfo info = infos.at(i);
    CHECK_EQ(info.expression, added[i].expression);
    CHECK_EQ(info.expected, added[i].expected);
    CHECK(info.location == added[i].location);
  }
}
