#include "dispatch/call/size_history.h"

namespace thunder::dispatch {

SizeHistory::Changing SizeHistory::compare(const std::string& path, const Sizes& sizes) const {
  const auto found = inputs_.find(path);
  if (found == inputs_.end() || found->second.sizes.size() != sizes.size()) return {};
  const Input& input = found->second;
  Changing changing{sizes, Sizes(sizes.size(), -1)};
  bool is_any = false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (input.is_pinned[i] || sizes[i] < 2) continue;
    changing.before[i] = input.sizes[i] != sizes[i] ? input.sizes[i] : input.before[i];
    is_any = is_any || changing.before[i] != -1;
  }
  return is_any ? changing : Changing();
}

void SizeHistory::note(const std::string& path, const Sizes& sizes) {
  Input& input = inputs_[path];
  if (input.sizes.size() != sizes.size()) {
    input = {sizes, Sizes(sizes.size(), -1), std::vector<bool>(sizes.size(), false)};
    return;
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (input.sizes[i] != sizes[i]) input.before[i] = input.sizes[i];
  }
  input.sizes = sizes;
}

void SizeHistory::pin(const std::string& path, std::size_t dim) {
  Input& input = inputs_[path];
  if (dim < input.is_pinned.size()) input.is_pinned[dim] = true;
}

}  // namespace thunder::dispatch
