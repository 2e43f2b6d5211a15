#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/verifier.h"
#include "tracer/fallback.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"

namespace thunder::check {

using Tensors = std::vector<at::Tensor>;
using TensorFunction = std::function<Tensors(const Tensors&)>;

/// The computation of a function of tensors, for inputs like these.
inline ir::Trace recorded(const TensorFunction& function, const Tensors& inputs) {
  tracer::init_tracer();
  tracer::Recorder recorder(ir::Trace(ir::TraceKind::kComputation, std::make_shared<ir::TraceContext>()));
  Tensors traced;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    traced.push_back(recorder.add_input(inputs[i], "x" + std::to_string(i)));
  Tensors results;
  {
    const tracer::RecordTop recording(recorder);
    results = function(traced);
  }
  ir::ArgumentList values;
  for (const at::Tensor& result : results) values.emplace_back(recorder.value_of(result));
  ir::Trace trace = recorder.finish(std::move(values));
  ir::verify(trace, "test");
  return trace;
}

}  // namespace thunder::check
