#include "executors/cuda_kernels/kernel_part.h"

#include <algorithm>

#include "executors/cuda_kernels/element_text.h"
#include "executors/cuda_kernels/mapping_choice.h"
#include "executors/cuda_kernels/registers.h"

namespace thunder::executors::cuda {

using fusion::ComputeType;
using fusion::KernelNode;

KernelContext::KernelContext(const fusion::SizedKernel& sized, const LaunchFacts& launch)
    : kernel(sized),
      facts(launch),
      mapping(choose_mapping(kernel, facts)),
      passes(kernel, mapping.joins_sums()),
      addresses(kernel, numbers),
      sums(kernel, mapping, passes, numbers),
      kept(kept_in_registers(kernel, passes, mapping, facts)),
      ahead(loaded_ahead(kernel, mapping, facts)) {}

std::string type_of(const KernelNode& node) { return std::string(type_text(node.type)); }

bool is_integer(const KernelNode& node) {
  return node.type == ComputeType::kInteger || node.type == ComputeType::kBool;
}

std::string value(std::size_t node) { return join("v", node); }

KernelPart::KernelPart(KernelContext& context)
    : kernel_(context.kernel),
      facts_(context.facts),
      mapping_(context.mapping),
      passes_(context.passes),
      numbers_(context.numbers),
      addresses_(context.addresses) {}

KernelPart::Access KernelPart::over_elements(const KernelNode& node) const {
  Access made = access(node);
  made.extent = fusion::Extent::kElements;
  return made;
}

bool KernelPart::loads_vectors(const KernelNode& node) const {
  return cuda::loads_vectors(node, kernel_, mapping_, facts_);
}

bool KernelPart::has_vectors_of_parts(const KernelNode& node) const {
  return has_vectorized_parts(access(node), kernel_, mapping_.vector, facts_);
}

std::string KernelPart::offset_of(const KernelNode& node) const { return join("offset", passes_.number(node)); }

std::string KernelPart::offset_at(const KernelNode& node, std::string_view column) {
  return sum_of({offset_of(node), addresses_.column_offset(over_elements(node), column)});
}

std::string KernelPart::vector_of(const Access& access) const {
  return join("Vector<", storage_text(access.dtype), ", ", mapping_.vector, ">");
}

std::string KernelPart::read(std::uint32_t array, const std::string& address) const {
  const bool is_overwritten =
      std::ranges::any_of(kernel_.overwritten, [&](const auto& pair) { return pair.first == array; });
  return is_overwritten ? join("*(", address, ")") : join("read(", address, ")");
}

std::string KernelPart::loaded(const KernelNode& node, const std::string& offset) const {
  return join("value_of(",
              read(access(node).array, join(array_text(access(node).array, access(node).dtype), " + ", offset)), ")");
}

std::string KernelPart::stored(const KernelNode& node) const {
  return join("Stored<", storage_text(access(node).dtype), ">::of(", value(node.operands[0]), ")");
}

void KernelPart::emit_is_inside(Lines& to) const {
  if (!mapping_.has_partial_vectors()) return;
  const std::string begins = mapping_.is_shifted ? "first_of_vector >= 0 && " : "";
  to.add("const bool is_inside = ", begins, "first_of_vector + ", mapping_.vector, " <= columns;");
}

}  // namespace thunder::executors::cuda
