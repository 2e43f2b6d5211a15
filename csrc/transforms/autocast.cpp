#include "transforms/autocast.h"

#include <ATen/autocast_mode.h>

namespace thunder::transforms {
namespace {

/// Autocast as PyTorch's context manager has it, while alive. Casts that it remembers belong to one trace.
class AutocastLayer {
 public:
  explicit AutocastLayer(const AutocastOptions& options)
      : device_(options.device),
        was_enabled_(at::autocast::is_autocast_enabled(device_)),
        dtype_before_(at::autocast::get_autocast_dtype(device_)) {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, options.dtype);
  }
  ~AutocastLayer() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, dtype_before_);
  }
  AutocastLayer(const AutocastLayer&) = delete;
  AutocastLayer& operator=(const AutocastLayer&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  c10::ScalarType dtype_before_;
};

}  // namespace

ir::Trace autocast(const ir::Trace& trace, const RecordedInputs& described, const AutocastOptions& options) {
  return record(trace, "autocast", described, [&](const std::vector<at::Tensor>& inputs) {
    const AutocastLayer layer(options);
    return replay(trace, inputs, GradMode::kAsRecorded);
  });
}

}  // namespace thunder::transforms
