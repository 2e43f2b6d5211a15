#include "tracer/scatters.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace thunder::tracer {
namespace {

using c10::IValue;

std::vector<std::int64_t> dims_in_memory(const at::Tensor& tensor) {
  std::vector<std::int64_t> dims(static_cast<std::size_t>(tensor.dim()));
  std::iota(dims.begin(), dims.end(), 0);
  std::ranges::stable_sort(dims, std::greater(), [&](std::int64_t dim) { return tensor.stride(dim); });
  return dims;
}

}  // namespace

bool lies_as(const at::Tensor& tensor, const at::Tensor& other) {
  if (tensor.numel() == 0) return true;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) != 1 && tensor.stride(i) != other.stride(i)) return false;
  }
  return true;
}

bool has_order_of(const at::Tensor& tensor, const at::Tensor& other) {
  return tensor.sizes().equals(other.sizes()) && dims_in_memory(tensor) == dims_in_memory(other);
}

at::Tensor copied_to_positions(const CallBuilder& calls, const OperatorCall& call, const at::Tensor& parent,
                               const at::Tensor& source) {
  const std::vector<std::int64_t> order = dims_in_memory(parent);
  std::vector<std::int64_t> back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  const at::Tensor in_order = calls.permute(parent, order);

  const std::int64_t offset = call.arguments[4].isInt() ? call.arguments[4].toInt() - parent.storage_offset() : 0;
  const auto flat = [&](const at::Tensor& tensor) { return calls.reshape(tensor, {-1}); };
  const at::Tensor all = calls.arange(parent.numel(), parent.device());
  const at::Tensor shown = calls.call({"aten::as_strided", "", {all, call.arguments[2], call.arguments[3], offset}});
  const at::Tensor copied = calls.index_copy(flat(in_order), 0, flat(shown), flat(source));
  return calls.permute(calls.reshape(copied, in_order.sizes()), back);
}

at::Tensor where_shown(const CallBuilder& calls, OperatorCall call, const at::Tensor& parent,
                       const at::Tensor& source) {
  const at::Tensor zeros = calls.zeros_like(parent);
  if (!zeros.strides().equals(parent.strides())) return calls.call(std::move(call));
  call.arguments[0] = zeros;
  const at::Tensor written = calls.call(call);
  call.arguments[1] = calls.ones_like(source);
  const at::Tensor places = calls.call(std::move(call));
  return calls.where(calls.is_not_zero(places), written, parent);
}

}  // namespace thunder::tracer
