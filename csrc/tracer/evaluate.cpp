#include "tracer/evaluate.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorOptions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "tracer/functional_form.h"
#include "tracer/map_tensors.h"
#include "tracer/meta_kernel.h"
#include "tracer/operators.h"
#include "tracer/result_rules.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

using c10::DispatchKey;
using c10::IValue;

template <typename T>
void append_bytes(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void append_numbers(std::string& key, c10::IntArrayRef numbers) {
  append_bytes(key, numbers.size());
  key.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int64_t));
}

/// Appends a tensor's metadata, and which earlier tensor of the call it shares memory with.
void append_tensor(std::string& key, const at::Tensor& tensor, std::vector<const c10::StorageImpl*>& storages) {
  append_bytes(key, tensor.scalar_type());
  append_bytes(key, tensor.device());
  append_numbers(key, tensor.sizes());
  append_numbers(key, tensor.strides());
  append_bytes(key, tensor.storage_offset());
  append_bytes(key, tensor.requires_grad());
  const auto* impl = tensor.unsafeGetTensorImpl();
  append_bytes(key, impl->is_wrapped_number());
  const c10::StorageImpl* storage = impl->has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
  const auto position = std::find(storages.begin(), storages.end(), storage) - storages.begin();
  append_bytes(key, position);
  storages.push_back(storage);
}

bool append_value(std::string& key, const IValue& value, std::vector<const c10::StorageImpl*>& storages) {
  key.push_back(static_cast<char>('a' + static_cast<int>(value.isTensor()) + 2 * static_cast<int>(value.isList()) +
                                  4 * static_cast<int>(value.isInt()) + 8 * static_cast<int>(value.isDouble())));
  if (value.isNone()) return true;
  if (value.isTensor()) {
    append_bytes(key, value.toTensor().defined());
    if (value.toTensor().defined()) append_tensor(key, value.toTensor(), storages);
  } else if (value.isBool()) {
    append_bytes(key, value.toBool());
  } else if (value.isInt()) {
    append_bytes(key, value.toInt());
  } else if (value.isDouble()) {
    append_bytes(key, value.toDouble());
  } else if (value.isDevice()) {
    append_bytes(key, value.toDevice());
  } else if (value.isString()) {
    append_bytes(key, value.toStringRef().size());
    key += value.toStringRef();
  } else if (value.isList()) {
    const auto elements = value.toListRef();
    append_bytes(key, elements.size());
    for (const IValue& element : elements) {
      if (!append_value(key, element, storages)) return false;
    }
  } else {
    return false;
  }
  return true;
}

/// Describes results by metadata and by the memory that they share with arguments.
class ResultReader {
 public:
  explicit ResultReader(const std::vector<at::Tensor>& arguments) : arguments_(arguments) {}

  ResultTypes read(std::span<const IValue> results) const {
    ResultTypes types;
    for (const IValue& result : results) types.results.push_back(read_one(result));
    return types;
  }

 private:
  ResultTypes::Result read_one(const IValue& value) const {
    ResultTypes::Result result;
    if (value.isTensor()) {
      result.tensors.push_back(describe(value.toTensor()));
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      result.is_list = true;
      for (const IValue& element : value.toListRef()) {
        result.tensors.push_back(element.isNone() ? ResultType() : describe(element.toTensor()));
      }
    } else {
      result.is_other = true;
      result.other = value;
    }
    return result;
  }

  ResultType describe(const at::Tensor& tensor) const {
    ResultType result;
    if (!tensor.defined()) return result;
    result.type = ir::make_type(bridge::type_of(tensor));
    if (tensor.grad_fn() != nullptr) result.grad_fn = tensor.grad_fn()->name();
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (result.same_as < 0 && arguments_[i].is_same(tensor)) result.same_as = static_cast<std::int32_t>(i);
      if (result.alias_of < 0 && share_memory(arguments_[i], tensor)) result.alias_of = static_cast<std::int32_t>(i);
    }
    return result;
  }

  const std::vector<at::Tensor>& arguments_;
};

bool has_tensor_results(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    if (result.type()->str().find("Tensor") != std::string::npos) return true;
  }
  return false;
}

[[noreturn]] void refuse_data_dependent(const c10::OperatorHandle& op) {
  if (has_tensor_results(op.schema()) && !op.hasComputedKernelForDispatchKey(DispatchKey::Meta)) {
    throw DataNeeded(ErrorKind::kNotImplemented,
                     op.schema().name() +
                         ": expected an operator with a meta kernel (a rule for the shapes of its "
                         "results), got one without; register one with torch.library.register_fake");
  }
  throw DataNeeded(ErrorKind::kNotImplemented,
                   op.schema().name() +
                       ": expected an operation whose result is known without the tensor's data, got one that needs "
                       "the data while the program is traced (for example bool(tensor), tensor.item(), tensor.tolist() "
                       "or a shape that depends on values); move it out of the jitted function");
}

/// A device with its number: `cuda` is the one that is current now.
c10::Device numbered(c10::Device device) {
  const bool has_numbers = !device.is_cpu() && !device.is_meta() && c10::impl::hasDeviceGuardImpl(device.type());
  return device.has_index() || !has_numbers ? device : c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

/// The device of the results: the `device` argument, or that of the tensors (0-dim CPU tensors go anywhere).
c10::Device result_device(const c10::OperatorHandle& op, std::span<const IValue> arguments,
                          const std::vector<at::Tensor>& tensors) {
  for (const IValue& argument : arguments) {
    if (argument.isDevice()) return argument.toDevice();
  }
  const at::Tensor* chosen = nullptr;
  for (const at::Tensor& tensor : tensors) {
    const bool goes_anywhere = tensor.dim() == 0 && tensor.device().is_cpu();
    if (chosen == nullptr || (chosen->dim() == 0 && chosen->device().is_cpu() && !goes_anywhere)) {
      chosen = &tensor;
    } else if (!goes_anywhere && tensor.device() != chosen->device() && !has_fact(op, Fact::kMixesDevices)) {
      const bool has_meta = tensor.is_meta() || chosen->is_meta();
      throw UserError(ErrorKind::kRuntime,
                      op.schema().name() + ": expected all tensors on the same device, got " + chosen->device().str() +
                          " and " + tensor.device().str() + "; " +
                          (has_meta ? "give the module on meta data with module.to_empty(device=...)"
                                    : "move them with .to(device)"));
    }
  }
  return chosen == nullptr ? c10::Device(c10::kCPU) : chosen->device();
}

bool is_real_number(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

/// Stands in for trace tensors on the meta device, and brings results back.
class MetaCall {
 public:
  explicit MetaCall(std::span<const IValue> arguments, bool has_real_numbers)
      : originals_(tensors_of(arguments)), has_real_numbers_(has_real_numbers) {}

  torch::jit::Stack make_stack(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
    torch::jit::Stack stack;
    const auto& parameters = op.schema().arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string& name = parameters[i].name();
      if (name == "device" || arguments[i].isDevice()) {
        stack.emplace_back(c10::Device(c10::kMeta));
      } else if (name == "generator" || name == "pin_memory") {
        stack.emplace_back();
      } else {
        stack.push_back(map_tensors(arguments[i], [&](const at::Tensor& tensor) { return to_meta(tensor); }));
      }
    }
    return stack;
  }

  /// A trace tensor without a value for a meta tensor; over an argument's memory when the kernel gave a view of it.
  at::Tensor from_meta(const at::Tensor& meta, c10::Device device) {
    if (!meta.defined()) return meta;
    for (std::size_t i = 0; i < metas_.size(); ++i) {
      if (metas_[i].is_same(meta)) return originals_[i];
    }
    ir::TensorType type = bridge::type_of(meta);
    type.device = bridge::from_torch(device);
    type.requires_grad = false;
    c10::Storage& storage = storages_[meta.storage().unsafeGetStorageImpl()];
    at::Tensor result = make_trace_tensor(type, std::make_shared<TraceState>(), storage);
    if (!storage) storage = result.storage();
    return result;
  }

  /// Carries metadata changes of in-place operators (`t_`, `resize_`) back to the arguments.
  void update_geometry() {
    for (std::size_t i = 0; i < metas_.size(); ++i) {
      TraceTensorImpl* impl = trace_impl(originals_[i]);
      // Transposing a square matrix in place changes nothing but its strides.
      if (impl != nullptr && !is_laid_out_alike(metas_[i], originals_[i])) {
        impl->set_geometry(metas_[i].sizes(), metas_[i].strides(), metas_[i].storage_offset());
      }
    }
  }

 private:
  at::Tensor to_meta(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    at::Tensor meta = tensor;
    if (has_real_numbers_ && is_real_number(tensor)) {
      // Kernels in Python take the number out of it; its kind is all that the results' types depend on.
      meta = at::detail::empty_cpu({}, tensor.scalar_type());
      std::memset(meta.mutable_data_ptr(), 0, meta.nbytes());
      meta.unsafeGetTensorImpl()->set_wrapped_number(true);
    } else if (trace_impl(tensor) != nullptr) {
      meta = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type(), c10::kStrided,
                                            c10::Device(c10::kMeta), std::nullopt);
      if (tensor.storage_offset() != 0) meta.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
      if (is_real_number(tensor)) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
      const auto same = std::ranges::find_if(originals_.begin(), originals_.begin() + std::ssize(metas_),
                                             [&](const at::Tensor& other) { return share_memory(other, tensor); });
      const std::ptrdiff_t position = same - originals_.begin();
      if (position < std::ssize(metas_)) {
        meta.unsafeGetTensorImpl()->set_storage_keep_dtype(metas_[static_cast<std::size_t>(position)].storage());
      } else {
        meta.storage().set_nbytes(tensor.storage().nbytes());
      }
      storages_[meta.storage().unsafeGetStorageImpl()] = tensor.storage();
    }
    metas_.push_back(meta);
    return meta;
  }

  std::vector<at::Tensor> originals_;
  std::vector<at::Tensor> metas_;  ///< one for each original
  bool has_real_numbers_;          ///< numbers beside tensors are tensors on the CPU, not on the meta device
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;
};

void call_without_data(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  try {
    op.callBoxed(stack);
  } catch (const c10::Error& error) {
    if (!says_data_was_read(error.what_without_backtrace())) throw;
    refuse_data_dependent(op);
  }
}

void run_meta_kernel(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_recording(
      c10::DispatchKeySet({DispatchKey::TESTING_ONLY_GenericMode, DispatchKey::Fake}) | c10::autocast_dispatch_keyset);
  try {
    if (const c10::KernelFunction* kernel = hidden_meta_kernel(op)) {
      kernel->callBoxed(op, c10::DispatchKeySet(DispatchKey::Meta), &stack);
    } else {
      call_without_data(op, stack);
    }
  } catch (const c10::NotImplementedError&) {
    refuse_data_dependent(op);
  } catch (const std::exception&) {
    // That of an operator of somebody else's may say in any way that it does not know: the operator itself does.
    if (!is_custom(op) && !is_functional_form(op)) throw;
    if (forget_python_error != nullptr) forget_python_error();
    refuse_data_dependent(op);
  }
}

void run_backend_kernel(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                        const std::vector<at::Tensor>& tensors) {
  const c10::Device device = tensors.empty() ? c10::Device(c10::kCPU) : tensors[0].device();
  op.redispatchBoxed(c10::DispatchKeySet(c10::computeDispatchKey(std::nullopt, std::nullopt, device)), &stack);
}

}  // namespace

bool ResultTypes::has_tensors() const {
  return std::any_of(results.begin(), results.end(), [](const Result& result) { return !result.is_other; });
}

bool ResultTypes::has_aliases() const {
  return std::any_of(results.begin(), results.end(), [](const Result& result) {
    return std::any_of(result.tensors.begin(), result.tensors.end(),
                       [](const ResultType& tensor) { return tensor.same_as >= 0 || tensor.alias_of >= 0; });
  });
}

bool is_laid_out_alike(const at::Tensor& left, const at::Tensor& right) {
  return left.sizes().equals(right.sizes()) && left.strides().equals(right.strides()) &&
         left.storage_offset() == right.storage_offset();
}

bool share_memory(const at::Tensor& left, const at::Tensor& right) {
  return left.has_storage() && right.has_storage() &&
         left.storage().unsafeGetStorageImpl() == right.storage().unsafeGetStorageImpl();
}

std::string metadata_key(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  std::string key;
  append_bytes(key, &op.operator_name());
  append_bytes(key, c10::GradMode::is_enabled());
  append_bytes(key, c10::get_default_dtype());
  std::vector<const c10::StorageImpl*> storages;
  for (const IValue& argument : arguments) {
    if (!append_value(key, argument, storages)) return {};
  }
  return key;
}

ResultTypes infer_top(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  const std::vector<at::Tensor> tensors = tensors_of(arguments);
  // Tensors that are made in inference mode have no history, also where gradients are enabled inside of it.
  const bool differentiable = c10::GradMode::is_enabled() && !c10::InferenceMode::is_enabled() &&
                              std::any_of(tensors.begin(), tensors.end(), [](auto& t) { return t.requires_grad(); });
  if (is_composite(op)) {
    if (const auto results = results_by_rule(op, arguments)) {
      for (const at::Tensor& result : tensors_of(*results)) {
        if (differentiable && result.is_floating_point()) result.set_requires_grad(true);
      }
      return ResultReader(tensors).read(*results);
    }
  }
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  std::optional<at::AutoDispatchBelowADInplaceOrView> below_autograd;
  if (!differentiable) below_autograd.emplace();
  try {
    call_without_data(op, stack);
  } catch (const DataNeeded&) {
    throw;
  } catch (const std::exception&) {
    // An error that says that data is needed may have come through autograd's part of the operator, in Python.
    if (!is_custom(op)) throw;
    if (forget_python_error != nullptr) forget_python_error();
    refuse_data_dependent(op);
  }
  return ResultReader(tensors).read(stack);
}

ResultTypes infer_leaf(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  const std::vector<at::Tensor> tensors = tensors_of(arguments);
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  evaluate_leaf(op, stack);
  return ResultReader(tensors).read(stack);
}

void evaluate_leaf(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  std::vector<IValue> arguments = torch::jit::pop(stack, op.schema().arguments().size());
  for (IValue& argument : arguments) {
    if (argument.isDevice()) argument = numbered(argument.toDevice());
  }
  const std::vector<at::Tensor> tensors = tensors_of(arguments);
  if (op.schema().returns().empty() && !op.schema().is_mutable()) return;  // a check of data, made when it runs
  if (!has_tensor_results(op.schema()) && !op.schema().is_mutable()) {
    if (!has_fact(op, Fact::kReadsMetadata)) refuse_data_dependent(op);
    torch::jit::Stack own(arguments);
    run_backend_kernel(op, own, tensors);
    stack.insert(stack.end(), own.begin(), own.end());
    return;
  }
  if (const auto results = results_by_rule(op, arguments)) {
    for (std::size_t i = 0; i < results->size(); ++i) {
      stack.push_back(result_as_of_kernel(op, arguments, i, (*results)[i]));
    }
    return;
  }
  const c10::Device device = result_device(op, arguments, tensors);
  const auto evaluate = [&](bool has_real_numbers) {
    MetaCall call(arguments, has_real_numbers);
    torch::jit::Stack metas = call.make_stack(op, arguments);
    run_meta_kernel(op, metas);
    if (op.schema().is_mutable()) call.update_geometry();
    const auto from_meta = [&](const at::Tensor& meta) { return call.from_meta(meta, device); };
    for (std::size_t i = 0; i < metas.size(); ++i) {
      stack.push_back(result_as_of_kernel(op, arguments, i, map_tensors(metas[i], from_meta)));
    }
  };
  if (std::ranges::none_of(tensors, is_real_number)) return evaluate(false);
  try {
    evaluate(true);  // kernels in Python take numbers out of tensors
  } catch (const std::exception&) {
    evaluate(false);  // others want one device
  }
}

}  // namespace thunder::tracer
