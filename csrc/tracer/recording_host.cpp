#include "tracer/recording_host.h"

#include "tracer/trace_node.h"

namespace thunder::tracer {

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
