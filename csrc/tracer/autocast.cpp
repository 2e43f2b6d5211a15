#include "tracer/autocast.h"

#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <stdexcept>
#include <utility>

#include "tracer/operators.h"
#include "tracer/recorder.h"

namespace thunder::tracer {
namespace {

using c10::DispatchKey;

enum class Search : std::uint8_t { kNone, kRunning, kFound };
thread_local Search search = Search::kNone;

}  // namespace

bool is_autocast_on() {
  return !(c10::autocast_dispatch_keyset - c10::impl::tls_local_dispatch_key_set().excluded_).empty();
}

std::optional<DispatchKey> autocast_key(const c10::OperatorHandle& op, c10::DispatchKeySet keys) {
  const c10::DispatchKeySet autocast = keys & c10::autocast_dispatch_keyset;
  if (autocast.empty()) return std::nullopt;
  const DispatchKey key = autocast.highestPriorityTypeId();
  if (!op.hasKernelForDispatchKey(key)) return std::nullopt;
  return key;
}

bool parts_meet_autocast(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) {
  if (op.schema().is_mutable()) return false;
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  const Search before = std::exchange(search, Search::kRunning);
  bool is_known = true;
  try {
    op.callBoxedForDispatchKey(DispatchKey::CompositeImplicitAutograd, stack);
  } catch (const std::exception&) {
    is_known = false;  // it reads data, or raises what it will raise again
  }
  return std::exchange(search, before) == Search::kFound || !is_known;
}

bool look_for_autocast(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  if (search == Search::kNone) return false;
  if (autocast_key(op, keys)) search = Search::kFound;
  if (search == Search::kFound) throw std::runtime_error("autocast casts");
  if (is_composite(op)) {
    op.callBoxedForDispatchKey(DispatchKey::CompositeImplicitAutograd, stack);
  } else {
    const EvaluateOnly nothing_recorded;
    op.callBoxed(stack);
  }
  return true;
}

void require_no_casts_inside(const c10::OperatorHandle& op) {
  if (is_autocast_on()) {
    refuse(op, "autocast casts inside of it; call it under torch.autocast(..., enabled=False)");
  }
}

}  // namespace thunder::tracer
