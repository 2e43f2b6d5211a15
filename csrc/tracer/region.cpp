#include "tracer/region.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "tracer/evaluate.h"
#include "tracer/recording_scopes.h"

namespace thunder::tracer {
namespace {

std::shared_ptr<ir::TraceContext> context_around() {
  Recorder* around = recorder_on_top();
  return around == nullptr ? std::make_shared<ir::TraceContext>() : around->trace().context();
}

at::Tensor data_of(Recorder* around, const at::Tensor& tensor) {
  return around == nullptr ? tensor.detach() : around->data.data_of(around->trace_tensor_of(tensor));
}

}  // namespace

std::function<at::Tensor(std::size_t)> data_source(std::vector<at::Tensor> tensors) {
  return [around = recorder_on_top(), tensors = std::move(tensors)](std::size_t position) {
    return data_of(around, tensors.at(position));
  };
}

Region::Region(std::string name, bool captures_require_grad)
    : RecordingHost(Recorded::kPart),
      around_(recorder_on_top()),
      recorder_(
          std::make_shared<Recorder>(ir::Trace(std::move(name), context_around()), static_cast<RecordingHost&>(*this))),
      captures_require_grad_(captures_require_grad) {
  if (around_ == nullptr) return;
  recorder_->data.full_graph = around_->data.full_graph;
  around_->keep(recorder_);  // a tensor of ours that escapes must not meet another recorder at this address
}

at::Tensor Region::data_of_input(std::size_t position) {
  const SuspendRecording suspended;
  return data_of(around_, outside_.at(position));
}

void Region::note_offset_asked(std::size_t position) {
  if (around_ != nullptr) around_->tensors.note_offset_asked(around_->trace_tensor_of(outside_.at(position)));
}

at::Tensor Region::add_input(const at::Tensor& outside, ir::TensorType type) {
  outside_.push_back(outside);
  ++own_inputs_;
  return recorder_->add_input(ir::make_type(std::move(type)));
}

at::Tensor Region::capture(const at::Tensor& outside) {
  for (std::size_t i = own_inputs_; i < outside_.size(); ++i) {
    if (outside_[i].is_same(outside)) return recorder_->tensors.inputs()[i];
  }
  ir::TensorType type = bridge::type_of(outside);
  type.requires_grad &= captures_require_grad_;
  outside_.push_back(outside);
  return recorder_->add_input(ir::make_type(std::move(type)));
}

std::vector<at::Tensor> Region::captures() const {
  return {outside_.begin() + static_cast<std::ptrdiff_t>(own_inputs_), outside_.end()};
}

bool Region::writes_captures() const {
  return std::ranges::any_of(recorder_->memory.written_inputs(), [this](std::size_t i) { return i >= own_inputs_; });
}

void Region::refuse_shared_writes() const {
  for (const std::size_t written : recorder_->memory.written_inputs()) {
    for (std::size_t i = 0; i < outside_.size(); ++i) {
      if (i == written || !share_memory(outside_[i], outside_[written])) continue;
      throw UserError(ErrorKind::kNotImplemented,
                      "a function that is transformed writes in place to a tensor that shares memory with another one "
                      "that it reads; write to a clone");
    }
  }
}

ir::Trace Region::finish(std::span<const at::Tensor> outputs) {
  ir::ArgumentList values;
  for (const at::Tensor& output : outputs)
    values.emplace_back(recorder_->output_of(recorder_->trace_tensor_of(output)));
  refuse_shared_writes();
  return recorder_->finish(std::move(values));
}

}  // namespace thunder::tracer
