#include "runtime/versions.h"

namespace thunder::runtime {
namespace {

void set_version(const at::Tensor& tensor, std::int64_t version) {
  c10::VariableVersion counter = tensor.unsafeGetTensorImpl()->version_counter();
  counter.set_version(version);
}

}  // namespace

bool counts_writes(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->version_counter().enabled(); }

at::Tensor shallow_alias(const at::Tensor& tensor) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  return at::Tensor(impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/true));
}

void set_output_versions(const Versions& versions, std::span<const at::Tensor> outputs) {
  for (std::size_t i = 0; i < versions.outputs.size() && i < outputs.size(); ++i) {
    const at::Tensor& output = outputs[i];
    if (versions.outputs[i] != 0 && output.defined() && counts_writes(output)) {
      set_version(output, versions.outputs[i]);
    }
  }
}

InputVersions::InputVersions(const Versions& versions, std::span<const at::Tensor> inputs) {
  for (const auto& [position, count] : versions.inputs) {
    const at::Tensor& input = inputs[position];
    if (counts_writes(input)) written_.push_back({input, input._version(), count});
  }
}

void InputVersions::set() const {
  for (const Written& written : written_) set_version(written.tensor, written.before);
  // Views of one another share a counter.
  for (const Written& written : written_) {
    set_version(written.tensor, written.tensor._version() + static_cast<std::int64_t>(written.count));
  }
}

}  // namespace thunder::runtime
