#include "runtime/launch_queue.h"

namespace thunder::runtime {

thread_local LaunchQueue* LaunchQueue::current_ = nullptr;

}  // namespace thunder::runtime
