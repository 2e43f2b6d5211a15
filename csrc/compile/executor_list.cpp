#include "compile/executor_list.h"

#include <algorithm>

#include "base/error.h"
#include "compile/compiler.h"
#include "executors/aten/executor.h"

namespace thunder::compile {
namespace {

std::string join(std::span<const std::string> names) {
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ", ") + name;
  return joined;
}

}  // namespace

std::span<const executors::Executor* const> all_executors() {
  static constexpr const executors::Executor* kExecutors[] = {&executors::aten::kExecutor};
  return kExecutors;
}

std::vector<std::string> executor_names() {
  std::vector<std::string> names;
  for (const executors::Executor* executor : all_executors()) names.emplace_back(executor->name);
  return names;
}

std::vector<const executors::Executor*> find_executors(std::span<const std::string> names) {
  std::vector<const executors::Executor*> found;
  for (const std::string& name : names) {
    const auto executor =
        std::ranges::find_if(all_executors(), [&](const executors::Executor* row) { return row->name == name; });
    if (executor == all_executors().end()) {
      throw UserError(ErrorKind::kValue, "executors: expected names among " + join(executor_names()) + ", got " + name);
    }
    found.push_back(*executor);
  }
  return found;
}

}  // namespace thunder::compile
