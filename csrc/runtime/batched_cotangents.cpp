#include "runtime/batched_cotangents.h"

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/ops/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

#include "runtime/legacy_batches.h"

namespace thunder::runtime {
namespace {

using Key = c10::DispatchKey;

/// Operations are those on plain tensors.
struct AsideOfLayers {
  c10::impl::ExcludeDispatchKeyGuard aside{
      c10::DispatchKeySet({Key::FuncTorchDynamicLayerFrontMode, Key::FuncTorchDynamicLayerBackMode,
                           Key::FuncTorchVmapMode, Key::FuncTorchBatched, Key::VmapMode, Key::Batched})};
};

Physical unwrap(const at::Tensor& tensor) {
  const auto* batched = at::functorch::maybeGetBatchedImpl(tensor);
  if (batched == nullptr) return is_legacy_example(tensor) ? unwrap_legacy(tensor) : Physical{tensor, {}};
  Physical result = unwrap(batched->value());
  const auto place = static_cast<std::int64_t>(result.levels.size());
  result.tensor = result.tensor.movedim(place + batched->bdim(), place);
  result.levels.push_back(batched->level());
  return result;
}

at::Tensor wrap(at::Tensor tensor, const std::map<std::int64_t, std::int64_t>& sizes, bool legacy) {
  if (legacy) {
    std::vector<std::int64_t> levels;
    for (const auto& [level, size] : sizes) levels.push_back(level);
    return wrap_legacy(tensor, levels);
  }
  for (const auto& [level, size] : sizes) tensor = at::functorch::makeBatched(std::move(tensor), 0, level);
  return tensor;
}

/// All examples of a tensor, those of all levels in one dimension; repeated in the levels that it has not.
at::Tensor all_examples(const Physical& physical, const std::map<std::int64_t, std::int64_t>& sizes) {
  at::Tensor tensor = physical.tensor;
  std::vector<std::int64_t> shape;
  for (const auto& [level, size] : sizes) {
    const bool is_there = std::ranges::find(physical.levels, level) != physical.levels.end();
    if (!is_there) tensor = tensor.unsqueeze(static_cast<std::int64_t>(shape.size()));
    shape.push_back(size);
  }
  const auto own = tensor.sizes().slice(shape.size());
  shape.insert(shape.end(), own.begin(), own.end());
  return tensor.expand(shape).flatten(0, static_cast<std::int64_t>(sizes.size()) - 1);
}

}  // namespace

bool has_examples(std::span<const at::Tensor> cotangents) {
  return std::ranges::any_of(cotangents, [](const at::Tensor& cotangent) {
    return cotangent.defined() && (at::functorch::isBatchedTensor(cotangent) || is_legacy_example(cotangent));
  });
}

std::vector<at::Tensor> run_examples(std::span<const at::Tensor> cotangents, const ExampleRun& run) {
  const bool legacy =
      std::ranges::any_of(cotangents, [](const at::Tensor& t) { return t.defined() && is_legacy_example(t); });
  const AsideOfLayers aside;
  std::vector<Physical> physical;
  std::map<std::int64_t, std::int64_t> sizes;  // by level
  for (const at::Tensor& cotangent : cotangents) {
    physical.push_back(cotangent.defined() ? unwrap(cotangent) : Physical{});
    const auto& [tensor, levels] = physical.back();
    for (std::size_t i = 0; i < levels.size(); ++i) sizes[levels[i]] = tensor.size(static_cast<std::int64_t>(i));
  }
  std::vector<std::int64_t> batch;
  for (const auto& [level, size] : sizes) batch.push_back(size);
  const std::int64_t count = std::accumulate(batch.begin(), batch.end(), std::int64_t{1}, std::multiplies<>());
  TORCH_CHECK(count != 0, "thunder: expected at least one example in a batch of gradients, got none");

  for (Physical& each : physical) {
    if (each.tensor.defined()) each.tensor = all_examples(each, sizes);
  }
  std::vector<std::vector<at::Tensor>> columns;
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<at::Tensor> example;
    for (const Physical& each : physical) example.push_back(each.tensor.defined() ? each.tensor[i] : at::Tensor());
    std::vector<at::Tensor> results = run(std::move(example), i + 1 == count);
    columns.resize(results.size());
    for (std::size_t k = 0; k < results.size(); ++k) {
      if (results[k].defined()) columns[k].push_back(std::move(results[k]));
    }
  }
  std::vector<at::Tensor> gradients;
  for (const std::vector<at::Tensor>& column : columns) {
    at::Tensor all = column.empty() ? at::Tensor() : at::stack(column);
    gradients.push_back(all.defined() ? wrap(all.unflatten(0, batch), sizes, legacy) : all);
  }
  return gradients;
}

}  // namespace thunder::runtime
