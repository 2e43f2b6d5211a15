#include "tracer/trace_session.h"

#include <utility>

namespace thunder::tracer {

TraceSession& TraceSession::current() {
  static thread_local TraceSession session;
  return session;
}

std::string take_refusal() { return std::exchange(TraceSession::current().refusal, {}); }
void note_refusal(std::string what) { TraceSession::current().refusal = std::move(what); }
bool take_raised_for_data() { return std::exchange(TraceSession::current().raised_for_data, false); }

}  // namespace thunder::tracer
