#include "executors/cuda/engine.h"

#include "base/background.h"
#include "base/error.h"

namespace thunder::executors::cuda {

std::shared_ptr<Compilation> Engine::request(const KernelSource& source, at::Device device) {
  std::shared_ptr<Compilation> made;
  {
    const std::scoped_lock lock(mutex_);
    const auto known = compilations_.find({device.index(), source.text});
    if (known != compilations_.end()) return known->second;
    made = std::make_shared<Compilation>(source.text, [this, source, device] { return compile(source, device); });
    compilations_.emplace(std::pair(device.index(), std::string_view(made->text())), made);
  }
  run_in_background([made] { made->run(); });
  return made;
}

void Engine::launch_group(std::span<const QueuedLaunch> launches, std::span<const std::byte> arguments,
                          at::Device device, std::unique_ptr<LaunchGroup>& /*kept*/) {
  for (const QueuedLaunch& each : launches) {
    Launch sized = *each.launch;
    sized.grid = each.grid;
    const bool is_done = launch(*each.module, sized, arguments.subspan(each.argument, each.size), device);
    THUNDER_CHECK(is_done, "cuda", "a kernel that waited for others was stopped");
  }
}

}  // namespace thunder::executors::cuda
