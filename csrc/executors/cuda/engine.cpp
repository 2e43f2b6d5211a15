#include "executors/cuda/engine.h"

#include "base/background.h"

namespace thunder::executors::cuda {

std::shared_ptr<Compilation> Engine::request(const KernelSource& source, at::Device device) {
  std::shared_ptr<Compilation> made;
  {
    const std::scoped_lock lock(mutex_);
    auto& known = compilations_[{device.index(), source.text}];
    if (known != nullptr) return known;
    made = known = std::make_shared<Compilation>([this, source, device] { return compile(source, device); });
  }
  run_in_background([made] { made->run(); });
  return made;
}

}  // namespace thunder::executors::cuda
