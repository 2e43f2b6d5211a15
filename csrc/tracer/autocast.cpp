#include "tracer/autocast.h"

#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <stdexcept>
#include <utility>

#include "tracer/operators.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_session.h"

namespace thunder::tracer {

using c10::DispatchKey;

bool is_autocast_on() {
  return !(c10::autocast_dispatch_keyset - c10::impl::tls_local_dispatch_key_set().excluded_).empty();
}

WithoutAutocast::WithoutAutocast() : excluded_(c10::autocast_dispatch_keyset) {
  at::autocast::increment_nesting();
  while (at::autocast::decrement_nesting() > 0) ++contexts_;
}

WithoutAutocast::~WithoutAutocast() {
  for (int i = 0; i < contexts_; ++i) at::autocast::increment_nesting();
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
  AutocastSearch& search = TraceSession::current().autocast_search;
  const AutocastSearch before = std::exchange(search, AutocastSearch::kRunning);
  bool is_known = true;
  try {
    op.callBoxedForDispatchKey(DispatchKey::CompositeImplicitAutograd, stack);
  } catch (const std::exception&) {
    is_known = false;  // it reads data, or raises what it will raise again
  }
  return std::exchange(search, before) == AutocastSearch::kFound || !is_known;
}

bool look_for_autocast(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  AutocastSearch& search = TraceSession::current().autocast_search;
  if (search == AutocastSearch::kOff) return false;
  const bool casts_inside = operators::facts_of(*operator_for(op)).has(operators::Fact::kCastsInside);
  if (casts_inside || autocast_key(op, keys)) search = AutocastSearch::kFound;
  if (search == AutocastSearch::kFound) throw std::runtime_error("autocast casts");
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
