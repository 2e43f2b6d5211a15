#include "tracer/observed_errors.h"

#include <utility>

#include "tracer/trace_session.h"

namespace thunder::tracer {

ObservedErrors::ObservedErrors(bool are_observed)
    : before_(std::exchange(TraceSession::current().are_errors_observed, are_observed)) {}
ObservedErrors::~ObservedErrors() { TraceSession::current().are_errors_observed = before_; }
bool ObservedErrors::are_observed() { return TraceSession::current().are_errors_observed; }

}  // namespace thunder::tracer
