#include "executors/cpu/threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <atomic>

#include "base/parallel.h"

namespace thunder::executors::cpu {
namespace {

/// The entry that compilers call for `#pragma omp parallel`, of the OpenMP that PyTorch has loaded, whatever its file
/// is called. Zero threads: as many as PyTorch has asked for.
using OpenMpParallel = void (*)(void (*function)(void*), void* data, unsigned threads, unsigned flags);

OpenMpParallel find_openmp() {
#if defined(__SANITIZE_THREAD__)
  return nullptr;  // its threads wait for one another in ways that ThreadSanitizer does not see
#else
  return reinterpret_cast<OpenMpParallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));  // NOLINT
#endif
}

struct Tasks {
  std::int64_t count;
  void (*task)(void*, std::int64_t);
  void* context;
  std::atomic<std::int64_t> next = 0;
};

void work(void* pointer) {
  Tasks& tasks = *static_cast<Tasks*>(pointer);
  for (std::int64_t i = tasks.next++; i < tasks.count; i = tasks.next++) tasks.task(tasks.context, i);
}

}  // namespace

void run_tasks(std::int64_t count, bool parallel, void (*task)(void*, std::int64_t), void* context) {
  static const OpenMpParallel kOpenMp = find_openmp();
  if (parallel) at::internal::lazy_init_num_threads();
  if (!parallel || count == 1 || at::in_parallel_region() || at::get_num_threads() == 1) {
    for (std::int64_t i = 0; i < count; ++i) task(context, i);
    return;
  }
  Tasks tasks{count, task, context};
  if (kOpenMp != nullptr) {
    kOpenMp(&work, &tasks, 0, 0);
  } else {
    thunder::parallel_for(static_cast<std::size_t>(at::get_num_threads()), [&](std::size_t) { work(&tasks); });
  }
}

}  // namespace thunder::executors::cpu
