#include "tracer/followed_data.h"

#include <optional>

#include "tracer/recorder.h"
#include "tracer/size_shadows.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

SizeShadows* shadows_of(const Recorder& recorder) {
  auto* const shadows = static_cast<SizeShadows*>(TraceSession::current().size_reads);
  if (shadows == nullptr || !shadows->is_outside()) return nullptr;
  if (shadows->is_of_program(recorder)) return shadows;
  shadows->pin_all();  // parts of a program have one size
  return nullptr;
}

/// While alive, sizes are read by thunder.
class InsideOf {
 public:
  explicit InsideOf(SizeShadows* shadows) {
    if (shadows != nullptr) scope_.emplace(*shadows);
  }

 private:
  std::optional<SizeShadows::Inside> scope_;
};

}  // namespace

FollowedData::FollowedData(Recorder& recorder) : recorder_(recorder), shadows_(shadows_of(recorder)) {}

Number FollowedData::item(const at::Tensor& tensor) const {
  const InsideOf inside(shadows_);
  const Number number = recorder_.data.item(tensor);
  if (shadows_ == nullptr) return number;
  shadows_->follow_data([&](Recorder& there, const SizeShadows::FindTensor& find) {
    static_cast<void>(there.data.item(find(tensor)));
    return at::Tensor();
  });
  return number;
}

at::Tensor FollowedData::contents_of(const at::Tensor& tensor) const {
  // All elements of a tensor are those of one size.
  const TraceTensorImpl* impl = trace_impl(tensor);
  if (shadows_ != nullptr && impl != nullptr && impl->is_watched()) shadows_->note_read(*impl);
  const InsideOf inside(shadows_);
  at::Tensor contents = recorder_.data.contents_of(tensor);
  if (shadows_ == nullptr) return contents;
  shadows_->follow_data([&](Recorder& there, const SizeShadows::FindTensor& find) {
    static_cast<void>(there.data.contents_of(find(tensor)));
    return at::Tensor();
  });
  return contents;
}

std::optional<Number> FollowedData::compute(std::string_view operation, const NumberOperand& left,
                                            const NumberOperand& right) const {
  const std::optional<Number> number = recorder_.data.compute(operation, left, right);
  if (shadows_ == nullptr) return number;
  shadows_->follow_data([&](Recorder& there, const SizeShadows::FindTensor& /*find*/) {
    for (const NumberOperand* operand : {&left, &right}) there.data.require_known(*operand);
    static_cast<void>(there.data.compute(operation, left, right));
    return at::Tensor();
  });
  return number;
}

void FollowedData::observe(const Number& number) const {
  recorder_.data.observe(number);
  if (shadows_ == nullptr) return;
  shadows_->follow_data([&](Recorder& there, const SizeShadows::FindTensor& /*find*/) {
    there.data.require_known(number);
    there.data.observe(number);
    return at::Tensor();
  });
}

at::Tensor FollowedData::number_tensor(ir::ValueId number) const {
  at::Tensor tensor = recorder_.data.number_tensor(number);
  if (shadows_ == nullptr) return tensor;
  shadows_->follow_data(
      [&](Recorder& there, const SizeShadows::FindTensor& /*find*/) { return there.data.number_tensor(number); },
      tensor);
  return tensor;
}

at::Tensor FollowedData::held_number(const at::Tensor& tensor, at::ScalarType dtype) const {
  const InsideOf inside(shadows_);
  at::Tensor held = recorder_.data.held_number(tensor, dtype);
  if (shadows_ == nullptr) return held;
  shadows_->follow_data(
      [&](Recorder& there, const SizeShadows::FindTensor& find) { return there.data.held_number(find(tensor), dtype); },
      held);
  return held;
}

}  // namespace thunder::tracer
