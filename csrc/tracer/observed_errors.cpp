#include "tracer/observed_errors.h"

#include <utility>

namespace thunder::tracer {
namespace {

thread_local bool observes = false;

}  // namespace

ObservedErrors::ObservedErrors(bool are_observed) : before_(std::exchange(observes, are_observed)) {}
ObservedErrors::~ObservedErrors() { observes = before_; }
bool ObservedErrors::are_observed() { return observes; }

}  // namespace thunder::tracer
