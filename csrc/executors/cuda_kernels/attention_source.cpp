#include "executors/cuda_kernels/attention_source.h"

#include <algorithm>
#include <bit>
#include <string>

#include "executors/cuda_kernels/attention_text.h"
#include "executors/cuda_kernels/element_text.h"
#include "executors/cuda_kernels/lines.h"
#include "executors/cuda_kernels/prelude.h"

namespace thunder::executors::cuda {
namespace {

using Strides = AttentionShape::Strides;

constexpr std::int64_t kWarp = 32;
/// Queries that read the same keys: their sums are in registers.
constexpr std::int64_t kMostRows = 8;
/// Shared memory that a kernel may declare.
constexpr std::int64_t kMostSharedBytes = std::int64_t{48} << 10U;
/// Keys up to which one thread block takes all of a group: putting the shares of several together is a second launch.
constexpr std::int64_t kKeysOfOnlyBlock = 512;
constexpr std::int64_t kLeastKeysOfBlock = 256;
constexpr std::int64_t kBlocksOfMultiprocessor = 2;

std::int64_t vector_of(ir::Dtype dtype) { return kWidestLoad / static_cast<std::int64_t>(ir::size_of(dtype)); }
std::int64_t rows_of(const AttentionShape& shape) { return shape.heads_of_group * shape.queries; }

/// How a kernel's work is shared out.
struct Plan {
  std::int64_t threads_of_key = 1;
  std::int64_t threads = 256;
  std::int64_t blocks_of_group = 1;
  std::int64_t keys_of_block = 1;
};

std::int64_t shared_bytes(const AttentionShape& shape, std::int64_t threads) {
  return threads / kWarp * rows_of(shape) * (shape.columns + 2) * static_cast<std::int64_t>(sizeof(float));
}

Plan plan_of(const AttentionShape& shape, const LaunchFacts& facts) {
  Plan plan;
  const std::int64_t vectors = divide_up(shape.columns, vector_of(shape.dtype));
  plan.threads_of_key = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(vectors)));
  while (shared_bytes(shape, plan.threads) > kMostSharedBytes) plan.threads /= 2;
  if (shape.keys > kKeysOfOnlyBlock) {
    const std::int64_t most = kBlocksOfMultiprocessor * facts.multiprocessors / (shape.batch * shape.groups);
    plan.blocks_of_group = std::clamp<std::int64_t>(most, 1, divide_up(shape.keys, kLeastKeysOfBlock));
  }
  plan.keys_of_block = divide_up(shape.keys, plan.blocks_of_group);
  plan.blocks_of_group = divide_up(shape.keys, plan.keys_of_block);
  return plan;
}

/// Whether rows of that array begin at vectors, and have their columns next to one another.
bool has_vectors(const Strides& strides, std::int64_t vector) {
  return strides[3] == 1 && std::all_of(strides.begin(), strides.begin() + 3,
                                        [&](std::int64_t stride) { return stride >= 0 && stride % vector == 0; });
}

/// Whether offsets fit in 32 bits.
bool has_short_offsets(const AttentionShape& shape, std::int64_t scratch_bytes) {
  const double heads = static_cast<double>(shape.groups * shape.heads_of_group);
  const double places = static_cast<double>(std::max(shape.keys + kKeysOfOnlyBlock, shape.queries));
  const auto fits = [&](const Strides& strides, double columns) {
    const double reach = static_cast<double>(shape.batch) * static_cast<double>(strides[0]) +
                         heads * static_cast<double>(strides[1]) + places * static_cast<double>(strides[2]) +
                         columns * static_cast<double>(strides[3]);
    return reach < static_cast<double>(INT32_MAX);
  };
  const auto columns = static_cast<double>(shape.columns);
  return scratch_bytes < INT32_MAX && fits(shape.query_strides, columns) && fits(shape.key_strides, columns) &&
         fits(shape.value_strides, columns) && fits(shape.result_strides, columns) && fits(shape.mask_strides, places);
}

std::vector<std::int64_t> numbers_of(const AttentionShape& shape, const Plan& plan) {
  std::vector<std::int64_t> numbers{shape.groups, shape.keys, plan.keys_of_block, plan.blocks_of_group};
  for (const Strides* strides :
       {&shape.query_strides, &shape.key_strides, &shape.value_strides, &shape.mask_strides, &shape.result_strides}) {
    numbers.insert(numbers.end(), strides->begin(), strides->end());
  }
  numbers.push_back(std::bit_cast<std::int32_t>(static_cast<float>(shape.scale)));
  return numbers;
}

std::string constants_of(const AttentionShape& shape, const Plan& plan) {
  Lines lines;
  const auto number = [&](const char* name, std::int64_t value) {
    lines.add("constexpr int ", name, " = ", value, ";");
  };
  const auto flag = [&](const char* name, bool value) {
    lines.add("constexpr bool ", name, " = ", value ? "true" : "false", ";");
  };
  const bool is_by_row = shape.mask_strides[1] != 0 || (shape.mask_strides[2] != 0 && shape.queries > 1);
  lines.add("typedef ", storage_text(shape.dtype), " Element;");
  lines.add("typedef ", storage_text(shape.mask.value_or(shape.dtype)), " MaskElement;");
  number("kHeadsOfGroup", shape.heads_of_group);
  number("kQueries", shape.queries);
  number("kRows", rows_of(shape));
  number("kColumns", shape.columns);
  number("kVector", vector_of(shape.dtype));
  number("kThreadsOfKey", plan.threads_of_key);
  number("kThreads", plan.threads);
  number("kUnrolled", rows_of(shape) > kMostRows / 2 ? 2 : 4);
  flag("kHasMask", shape.mask.has_value());
  flag("kMaskIsBool", shape.mask == ir::Dtype::kBool);
  flag("kMaskIsByRow", is_by_row);
  flag("kIsShared", plan.blocks_of_group > 1);
  return lines.text();
}

/// The text with the functions' names.
std::string named(std::string_view text, const std::string& name) {
  constexpr std::string_view kPlaceholder = "FUNCTION";
  std::string made;
  for (std::size_t at = text.find(kPlaceholder); at != std::string_view::npos; at = text.find(kPlaceholder)) {
    made += join(text.substr(0, at), name);
    text.remove_prefix(at + kPlaceholder.size());
  }
  return made + std::string(text);
}

}  // namespace

bool has_attention_kernel(ir::Dtype dtype, std::int64_t columns, std::int64_t queries_of_group) {
  const bool is_known = dtype == ir::Dtype::kFloat32 || ir::is_half(dtype);
  if (!is_known || columns < 1 || queries_of_group < 1 || queries_of_group > kMostRows) return false;
  return columns % vector_of(dtype) == 0 && columns / vector_of(dtype) <= kWarp;
}

std::optional<KernelSource> emit_attention(const AttentionShape& shape, const LaunchFacts& facts) {
  if (!has_attention_kernel(shape.dtype, shape.columns, rows_of(shape))) return std::nullopt;
  if (shape.batch * shape.groups * shape.keys == 0) return std::nullopt;
  const std::int64_t vector = vector_of(shape.dtype);
  const bool are_vectors = has_vectors(shape.query_strides, vector) && has_vectors(shape.key_strides, vector) &&
                           has_vectors(shape.value_strides, vector);
  if (!are_vectors || facts.alignment % kWidestLoad != 0) return std::nullopt;
  const Plan plan = plan_of(shape, facts);
  const std::int64_t groups = shape.batch * shape.groups;
  const int threads = static_cast<int>(plan.threads);
  KernelSource source;
  source.array_count = shape.mask ? 5 : 4;
  source.numbers = numbers_of(shape, plan);
  source.launches = {{facts.name, groups * plan.blocks_of_group, threads}};
  if (plan.blocks_of_group > 1) {
    constexpr std::int64_t kBytesOfShare = 12;
    source.launches.push_back({facts.name + "_finish", groups, threads});
    source.scratch_bytes = groups * plan.blocks_of_group * rows_of(shape) * shape.columns * kBytesOfShare;
  }
  const char* index = has_short_offsets(shape, source.scratch_bytes) ? "int" : "long long";
  source.text = join("typedef ", index, " Index;\n", kPrelude, "\nstruct Parameters {\n  void* arrays[",
                     source.array_count, "];\n  void* scratch;\n  Integer numbers[", source.numbers.size(),
                     "];\n};\n\n", constants_of(shape, plan), named(kAttentionText, facts.name));
  return source;
}

}  // namespace thunder::executors::cuda
