#include "executors/callback/call_site.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "base/error.h"
#include "bridge/convert.h"
#include "ir/location.h"

namespace thunder::executors::callback {
namespace {

template <typename Visitor>
void for_each_tensor(const c10::IValue& value, const Visitor& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, visit);
  }
}

const c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.numel() != 0 ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

/// `cpu f32[2, 16]`
std::string describe(ir::TensorType type) {
  type.requires_grad = false;
  return ir::to_string(ir::Type(std::move(type)));
}

bool has_strides(const at::Tensor& tensor, const std::vector<std::int64_t>& strides) {
  for (std::size_t i = 0; i < strides.size(); ++i) {
    const auto dim = static_cast<std::int64_t>(i);
    if (tensor.size(dim) != 1 && tensor.stride(dim) != strides[i]) return false;
  }
  return true;
}

}  // namespace

std::string CallSite::message(const std::string& what) const {
  return "executor '" + executor + "': " + operation + ": " + what +
         ir::describe_line({&location.file, location.line}, "\n  called in ");
}

ResultCheck::ResultCheck(const CallSite& site, const std::vector<c10::IValue>& stack) : site_(site) {
  for (const c10::IValue& argument : stack) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (const auto* memory = memory_of(tensor)) memory_.push_back(memory);
    });
  }
}

at::Tensor ResultCheck::checked(const at::Tensor& result, std::size_t index) const {
  const auto fail = [&](const std::string& what) {
    const std::string which = site_.results.size() == 1 ? "" : " as result " + std::to_string(index);
    throw UserError(ErrorKind::kRuntime, site_.message("expected " + what + which));
  };
  const auto* expected = std::get_if<ir::TensorType>(site_.results[index].get());
  if (expected == nullptr) return result;
  if (!result.defined()) fail(describe(*expected) + ", as it is declared, got None");
  const ir::TensorType type = bridge::type_of(result);
  const bool same_device =
      type.device.type == expected->device.type &&
      (expected->device.index < 0 || type.device.index < 0 || type.device.index == expected->device.index);
  if (type.dtype != expected->dtype || !same_device || bridge::hints(type.sizes) != bridge::hints(expected->sizes)) {
    fail(describe(*expected) + ", as it is declared, got " + describe(type));
  }
  if (std::ranges::find(memory_, memory_of(result)) != memory_.end()) {
    fail("a tensor with memory of its own, got an argument or a view of one; return a copy (tensor.clone())");
  }
  const std::vector<std::int64_t> strides = bridge::hints(expected->strides);
  if (result.numel() == 0 || has_strides(result, strides)) return result;
  return at::empty_strided(result.sizes(), strides, result.options()).copy_(result);
}

void ResultCheck::apply(std::vector<c10::IValue>& stack) const {
  std::size_t index = 0;
  const auto next = [&](const c10::IValue& value) -> at::Tensor {
    const std::size_t current = index++;
    if (current >= site_.results.size() || site_.results[current] == nullptr) {
      return value.isTensor() ? value.toTensor() : at::Tensor();
    }
    return checked(value.toTensor(), current);
  };
  for (c10::IValue& result : stack) {
    if (!result.isTensorList()) {
      result = next(result);
      continue;
    }
    c10::List<at::Tensor> list;
    for (const c10::IValue& element : result.toListRef()) list.push_back(next(element));
    result = std::move(list);
  }
}

}  // namespace thunder::executors::callback
