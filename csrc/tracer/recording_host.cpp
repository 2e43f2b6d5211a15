#include "tracer/recording_host.h"

#include "base/error.h"

namespace thunder::tracer {

void refuse_backward_through_trace() {
  throw UserError(ErrorKind::kRuntime,
                  "backward() through a tensor that belongs to a trace: it was kept from the time when a jitted "
                  "function was traced; return it from the function instead");
}

at::Tensor RecordingHost::capture(const at::Tensor& outside) { return outside; }

std::vector<at::Tensor> RecordingHost::derive(TraceNode& /*node*/, std::vector<at::Tensor> /*cotangents*/) {
  refuse_backward_through_trace();
}

RecordingHost& RecordingHost::whole_program() {
  static RecordingHost host(Recorded::kProgram);
  return host;
}

RecordingHost& RecordingHost::one_operator() {
  static RecordingHost host(Recorded::kOperator);
  return host;
}

}  // namespace thunder::tracer
