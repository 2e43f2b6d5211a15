#pragma once

#include <algorithm>
#include <cstddef>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>

namespace thunder::executors::cuda {

/// Texts and integers, one after the other.
template <typename... Parts>
[[nodiscard]] std::string join(const Parts&... parts) {
  std::string text;
  const auto add = [&](const auto& part) {
    if constexpr (std::is_integral_v<std::decay_t<decltype(part)>>) {
      text += std::to_string(part);
    } else {
      text += part;
    }
  };
  (add(parts), ...);
  return text;
}

/// Lines of C++, indented by their braces.
class Lines {
 public:
  template <typename... Parts>
  void add(const Parts&... parts) {
    const std::string line = join(parts...);
    if (line.starts_with('}')) --depth_;
    text_ += std::string(static_cast<std::size_t>(2 * std::max(depth_, 0)), ' ') + line + "\n";
    if (line.ends_with('{')) ++depth_;
  }
  void append(const Lines& other) {
    for (const auto line : std::views::split(other.text_, '\n')) {
      const std::string_view text(line.begin(), line.end());
      if (!text.empty()) text_ += std::string(static_cast<std::size_t>(2 * depth_), ' ') + std::string(text) + "\n";
    }
  }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] bool empty() const { return text_.empty(); }

 private:
  std::string text_;
  int depth_ = 0;
};

}  // namespace thunder::executors::cuda
