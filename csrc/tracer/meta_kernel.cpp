#include "tracer/meta_kernel.h"

#include <algorithm>

namespace thunder::tracer {
namespace {

template <typename KernelsByKey>
const c10::KernelFunction* hidden_kernel(const KernelsByKey& kernels) {
  const auto found = kernels.find(c10::DispatchKey::Meta);
  if (found == kernels.end()) return nullptr;
  const auto is_native = [](const auto& kernel) { return kernel.debug.find(".py:") == std::string::npos; };
  const auto native = std::find_if(found->second.begin(), found->second.end(), is_native);
  const bool is_hidden = native != found->second.end() && native != found->second.begin();
  return is_hidden && native->kernel.isValid() ? &native->kernel : nullptr;
}

const c10::KernelFunction* find(const c10::OperatorHandle& op);

/// The dispatcher keeps kernels that others were registered over, and has no function that gives them. Private members
/// may be named in an explicit instantiation.
template <typename Definition, Definition definition, typename Kernels, Kernels kernels>
struct Members {
  friend const c10::KernelFunction* find(const c10::OperatorHandle& op) {
    return hidden_kernel((op.*definition)->op.*kernels);
  }
};
template struct Members<decltype(&c10::OperatorHandle::operatorDef_), &c10::OperatorHandle::operatorDef_,
                        decltype(&c10::impl::OperatorEntry::kernels_), &c10::impl::OperatorEntry::kernels_>;

}  // namespace

const c10::KernelFunction* hidden_meta_kernel(const c10::OperatorHandle& op) { return find(op); }

}  // namespace thunder::tracer
