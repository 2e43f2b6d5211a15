#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/trace.h"

namespace thunder::interpreter {

/// For people: what a guard is about.
struct GuardInfo {
  std::string expression;
  std::string expected;
  ir::SourceLocation location;
};

/// Those of a program with thousands of guards, in little memory: an expression keeps only what differs from the one
/// before it (`self.layers[3].weight`, `self.layers[3].bias`).
class GuardInfos {
 public:
  /// Returns its number.
  std::uint32_t add(const GuardInfo& info);
  [[nodiscard]] GuardInfo at(std::size_t index) const;
  [[nodiscard]] std::size_t size() const { return size_; }
  /// After the last one: frees what only `add` needs.
  void finish();

 private:
  static constexpr std::size_t kBlock = 16;  ///< an expression is kept in full every so many

  std::size_t size_ = 0;
  std::string bytes_;
  std::vector<std::uint32_t> blocks_;  ///< where they begin
  std::vector<std::string> expected_;
  std::vector<const std::string*> files_;
  std::map<std::string, std::size_t, std::less<>> expected_numbers_;
  std::string last_expression_;
};

}  // namespace thunder::interpreter
