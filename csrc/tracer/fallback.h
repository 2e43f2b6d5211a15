#pragma once

namespace thunder::tracer {

/// Registers the tracer's fallbacks with the dispatcher, once per process: they hand calls to the recorder of the
/// innermost `RecordTop` or `RecordBottom`.
void init_tracer();

}  // namespace thunder::tracer
