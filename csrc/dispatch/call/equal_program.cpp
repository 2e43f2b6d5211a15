#include "dispatch/call/equal_program.h"

#include <algorithm>

#include "ir/equality.h"

namespace thunder::dispatch {
namespace {

bool can_be_shared(const ir::Trace& recorded, const compile::Options& options) {
  const auto is_built_in = [](const executors::Executor* executor) { return compile::is_built_in(*executor); };
  return recorded.context()->objects.empty() && options.transforms.empty() && !options.prepack_weights &&
         std::ranges::all_of(options.executors, is_built_in);
}

}  // namespace

void share_or_compile(const ir::Trace& recorded, const compile::Options& options,
                      std::span<const std::shared_ptr<const Specialization>> known, Specialization& specialization) {
  if (can_be_shared(recorded, options)) {
    specialization.fingerprint = ir::hash_value(recorded);
    for (const auto& other : known) {
      if (other->fingerprint != specialization.fingerprint || !(other->state == specialization.state)) continue;
      if (!ir::is_same(recorded, other->computation->recorded())) continue;
      specialization.computation = other->computation;
      return;
    }
  }
  specialization.computation = compile::compile(recorded, options);
}

}  // namespace thunder::dispatch
