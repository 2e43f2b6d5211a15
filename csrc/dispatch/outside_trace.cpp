#include "dispatch/call/outside_trace.h"

#include <ATen/FuncTorchTLS.h>
#include <ATen/autocast_mode.h>

#include <utility>

#include "dispatch/numbers/size_origin.h"
#include "tracer/trace_session.h"

namespace thunder::dispatch {
namespace {

/// A trace of this thread, kept aside while alive.
class TraceAside {
 public:
  TraceAside(const at::ThreadLocalState& thread, const ThreadState& settings) {
    at::ThreadLocalState::setThreadLocalState(thread);
    set_thread_state(settings);
    at::autocast::clear_cache();
  }
  ~TraceAside() {
    at::autocast::clear_cache();
    set_thread_state(settings_);
    at::ThreadLocalState::setThreadLocalState(thread_);
    at::functorch::functorchTLSAccessor() = std::move(transforms_);
    tracer::TraceSession::current() = std::move(session_);
  }
  TraceAside(const TraceAside&) = delete;
  TraceAside& operator=(const TraceAside&) = delete;

 private:
  tracer::TraceSession session_ = std::exchange(tracer::TraceSession::current(), {});
  /// The object itself rather than a copy: code of functorch that is running holds references into it.
  std::unique_ptr<at::functorch::FuncTorchTLSBase> transforms_ =
      std::exchange(at::functorch::functorchTLSAccessor(), nullptr);
  at::ThreadLocalState thread_;
  ThreadState settings_ = ThreadState::now();
  NumbersOfSizes numbers_{nullptr};
};

}  // namespace

std::shared_ptr<void> StateOfCall::leave_trace() const { return std::make_shared<TraceAside>(thread_, settings_); }

}  // namespace thunder::dispatch
