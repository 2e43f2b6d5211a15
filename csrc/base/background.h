#pragma once

#include <functional>

namespace thunder {

/// Runs `work`, which throws nothing, on a worker thread, in the order of the calls as far as that goes. Some
/// processors are left to the threads of the process. A process that was forked has no such threads: its work never
/// begins.
void run_in_background(std::function<void()> work);

/// From now on no work begins; returns when what has begun is done. The end of the process does this: libraries that
/// work needs are closed then.
void end_background_work();

}  // namespace thunder
