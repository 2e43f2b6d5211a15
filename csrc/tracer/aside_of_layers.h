#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace thunder::tracer {

/// While alive, operations run as if no transform of PyTorch's (`vmap`, `grad`) were active.
class AsideOfLayers {
  using Key = c10::DispatchKey;
  c10::impl::ExcludeDispatchKeyGuard aside_{c10::DispatchKeySet(
      {Key::FuncTorchDynamicLayerFrontMode, Key::FuncTorchDynamicLayerBackMode, Key::FuncTorchVmapMode})};
};

}  // namespace thunder::tracer
