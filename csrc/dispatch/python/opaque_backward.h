#pragma once

namespace thunder::dispatch {

/// Lets `thunder._opaque_backward` make the operators of transforms/opaque_backward.h.
void make_opaque_backwards_in_python();

}  // namespace thunder::dispatch
