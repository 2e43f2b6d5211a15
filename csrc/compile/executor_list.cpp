#include "compile/executor_list.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "executors/aten/executor.h"
#include "executors/cpu/executor.h"
#include "executors/cublaslt/executor.h"
#include "executors/cuda/executor.h"
#include "executors/reference/executor.h"

namespace thunder::compile {
namespace {

using executors::Executor;

/// The executors of this build that run unless others are chosen, by priority.
const Executor* const kBuiltIn[] = {&executors::cpu::kExecutor, &executors::cuda::executor(),
                                    &executors::aten::kExecutor};
/// The executor for whatever no other one runs.
constexpr const Executor* kFallback = &executors::aten::kExecutor;

/// With those that run where they are chosen only.
Executors with_optional(Executors executors) {
  executors.push_back(&executors::cublaslt::executor());
  executors.push_back(&executors::reference::kExecutor);
  return executors;
}

struct Table {
  std::mutex mutex;
  Executors defaults{std::begin(kBuiltIn), std::end(kBuiltIn)};
  Executors known = with_optional(defaults);
};

Table& table() {
  static auto* const kTable = new Table;
  return *kTable;
}

const Executor* find(const Executors& known, std::string_view name) {
  const auto found = std::ranges::find(known, name, [](const Executor* row) { return std::string_view(row->name); });
  return found == known.end() ? nullptr : *found;
}

void require_free(std::string_view name) {
  const Executor* known = find(with_optional({std::begin(kBuiltIn), std::end(kBuiltIn)}), name);
  if (known == nullptr) return;
  throw UserError(ErrorKind::kValue, "executors: expected another name than that of one of thunder's own, got '" +
                                         std::string(name) + "'");
}

}  // namespace

bool is_built_in(const Executor& executor) {
  const auto has_its_name = [&](const Executor* row) { return row->name == executor.name; };
  return std::ranges::any_of(with_optional({std::begin(kBuiltIn), std::end(kBuiltIn)}), has_its_name);
}

void register_executor(const Executor& executor) {
  require_free(executor.name);
  Table& executors = table();
  const std::scoped_lock lock(executors.mutex);
  const Executor* before = find(executors.known, executor.name);
  if (before == nullptr) {
    executors.known.push_back(&executor);
    return;
  }
  std::ranges::replace(executors.known, before, &executor);
  std::ranges::replace(executors.defaults, before, &executor);
}

void deregister_executor(std::string_view name) {
  require_free(name);
  Table& executors = table();
  const std::scoped_lock lock(executors.mutex);
  const Executor* known = find(executors.known, name);
  std::erase(executors.known, known);
  std::erase(executors.defaults, known);
}

std::vector<std::string> executor_names() {
  Table& executors = table();
  const std::scoped_lock lock(executors.mutex);
  std::vector<std::string> names;
  for (const Executor* executor : executors.known) names.emplace_back(executor->name);
  return names;
}

const Executor* find_executor(std::string_view name) {
  Table& executors = table();
  const std::scoped_lock lock(executors.mutex);
  if (const Executor* found = find(executors.known, name)) return found;
  std::string names;
  for (const Executor* known : executors.known) names += (names.empty() ? "" : ", ") + std::string(known->name);
  throw UserError(ErrorKind::kValue, "executors: expected names among " + names + ", got '" + std::string(name) + "'");
}

Executors default_executors() {
  Table& executors = table();
  const std::scoped_lock lock(executors.mutex);
  return executors.defaults;
}

void set_default_executors(Executors chosen) {
  Table& executors = table();
  const std::scoped_lock lock(executors.mutex);
  executors.defaults = std::move(chosen);
}

Executors with_fallback(Executors chosen) {
  if (std::ranges::find(chosen, kFallback) != chosen.end()) return chosen;
  for (const Executor* executor : kBuiltIn) {
    if (std::ranges::find(chosen, executor) == chosen.end()) chosen.push_back(executor);
  }
  return chosen;
}

Executors with_prepacked_weights(Executors chosen) {
  std::ranges::replace(chosen, &executors::cpu::kExecutor, &executors::cpu::kPrepackingExecutor);
  return chosen;
}

}  // namespace thunder::compile
