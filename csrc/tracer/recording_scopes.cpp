#include "tracer/recording_scopes.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "tracer/trace_session.h"

namespace thunder::tracer {
namespace {

using c10::DispatchKey;

bool is_included(DispatchKey key) { return c10::impl::tls_local_dispatch_key_set().included_.has(key); }
void include(DispatchKey key, bool included) { c10::impl::tls_set_dispatch_key_included(key, included); }
void exclude(DispatchKey key, bool excluded) { c10::impl::tls_set_dispatch_key_excluded(key, excluded); }

}  // namespace

RecordingScope::RecordingScope()
    : top_(TraceSession::current().top),
      bottom_(TraceSession::current().bottom),
      top_included_(is_included(DispatchKey::TESTING_ONLY_GenericMode)),
      bottom_included_(is_included(DispatchKey::Fake)),
      batched_excluded_(c10::impl::tls_local_dispatch_key_set().excluded_.has(DispatchKey::Batched)) {}

RecordingScope::~RecordingScope() {
  TraceSession& session = TraceSession::current();
  session.top = top_;
  session.bottom = bottom_;
  include(DispatchKey::TESTING_ONLY_GenericMode, top_included_);
  include(DispatchKey::Fake, bottom_included_);
  exclude(DispatchKey::Batched, batched_excluded_);
}

WithoutSavingHooks::WithoutSavingHooks() : previous_(at::SavedTensorDefaultHooks::set_tracing(true)) {}
WithoutSavingHooks::~WithoutSavingHooks() { at::SavedTensorDefaultHooks::set_tracing(previous_); }

RecordTop::RecordTop(Recording& recorder) {
  TraceSession::current().top = &recorder;
  include(DispatchKey::TESTING_ONLY_GenericMode, true);
  exclude(DispatchKey::Batched, true);
}

RecordBottom::RecordBottom(Recording& recorder) {
  TraceSession::current().bottom = &recorder;
  include(DispatchKey::Fake, true);
  exclude(DispatchKey::Batched, true);
}

SuspendRecording::SuspendRecording() {
  include(DispatchKey::TESTING_ONLY_GenericMode, false);
  include(DispatchKey::Fake, false);
}

EvaluateOnly::EvaluateOnly() {
  TraceSession::current().bottom = nullptr;
  include(DispatchKey::TESTING_ONLY_GenericMode, false);
  include(DispatchKey::Fake, true);
  exclude(DispatchKey::Batched, true);
}

}  // namespace thunder::tracer
