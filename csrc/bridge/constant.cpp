#include "bridge/constant.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "bridge/convert.h"

namespace thunder::bridge {

using ir::ObjectKind;

ir::ObjectConstant add_tensor(ir::TraceContext& context, at::Tensor tensor) {
  return context.add_object(ObjectKind::kTensor, std::make_shared<at::Tensor>(std::move(tensor)));
}

ir::ObjectConstant add_value(ir::TraceContext& context, c10::IValue value) {
  const ObjectKind kind = value.isGenerator() ? ObjectKind::kGenerator : ObjectKind::kDispatcherValue;
  std::string description = value.tagKind();
  return context.add_object({kind, std::make_shared<c10::IValue>(std::move(value)), std::move(description)});
}

const at::Tensor& tensor_of(const ir::TraceContext& context, const ir::Argument& object) {
  const auto constant = std::get<ir::ObjectConstant>(object.content);
  return *static_cast<const at::Tensor*>(context.owner_of(constant, ObjectKind::kTensor).get());
}

const c10::IValue& value_of(const ir::TraceContext& context, ir::ObjectConstant object) {
  const bool is_generator = context.objects.at(object.index).kind == ObjectKind::kGenerator;
  const ObjectKind kind = is_generator ? ObjectKind::kGenerator : ObjectKind::kDispatcherValue;
  return *static_cast<const c10::IValue*>(context.owner_of(object, kind).get());
}

namespace {

void write_device(ByteWriter& writer, c10::Device device) {
  writer.write_number(static_cast<std::uint64_t>(device.type()));
  writer.write_signed(device.index());
}

c10::Device read_device(ByteReader& reader) {
  const std::uint64_t type = reader.read_number();
  const std::int64_t index = reader.read_signed();
  const bool is_known = type < static_cast<std::uint64_t>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES);
  THUNDER_CHECK(is_known && index >= -1 && index <= 127, "bridge", "no such device");
  return {static_cast<c10::DeviceType>(type), static_cast<c10::DeviceIndex>(index)};
}

const at::Generator* default_generator(c10::Device device) {
  if (device.is_cpu()) return &at::detail::getDefaultCPUGenerator();
  at::Context& context = at::globalContext();
  const bool is_there =
      device.is_cuda() && at::Context::hasCUDA() && device.index() < at::detail::getCUDAHooks().getNumGPUs();
  return is_there ? &context.defaultGenerator(device) : nullptr;
}

/// Elements from the first to the last, with what lies between; nullopt: so much of it that strides must be wrong.
std::optional<std::int64_t> extent_of(const std::vector<std::int64_t>& sizes,
                                      const std::vector<std::int64_t>& strides) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  constexpr std::int64_t kSparsest = 16;
  std::int64_t count = 1;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || sizes[i] > kMost || strides[i] < 0 || strides[i] > kMost) return std::nullopt;
    if (__builtin_mul_overflow(count, sizes[i], &count) || count > kMost) return std::nullopt;
    std::int64_t step = 0;
    if (__builtin_mul_overflow(std::max<std::int64_t>(sizes[i] - 1, 0), strides[i], &step) || step > kMost)
      return std::nullopt;
    last += step;
  }
  if (count == 0) return 0;
  return last < kSparsest * count + kSparsest ? std::optional(last + 1) : std::nullopt;
}

std::optional<std::string> store_tensor(const at::Tensor& tensor) {
  const bool is_plain = tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized() &&
                        !tensor.is_conj() && !tensor.is_neg() && !tensor.is_nested() &&
                        !tensor.key_set().has(c10::DispatchKey::Python) && (tensor.is_cpu() || tensor.is_cuda());
  if (!is_plain || !extent_of(tensor.sizes().vec(), tensor.strides().vec())) return std::nullopt;
  const c10::InferenceMode no_autograd;
  const at::Tensor contents = tensor.cpu().contiguous();
  std::string bytes;
  ByteWriter writer(bytes);
  writer.write_number(static_cast<std::uint64_t>(from_torch(tensor.scalar_type())));
  write_device(writer, tensor.device());
  writer.write_number(tensor.unsafeGetTensorImpl()->is_wrapped_number() ? 1 : 0);
  writer.write_number(static_cast<std::uint64_t>(tensor.dim()));
  for (const std::int64_t size : tensor.sizes()) writer.write_signed(size);
  for (const std::int64_t stride : tensor.strides()) writer.write_signed(stride);
  writer.write_text({static_cast<const char*>(contents.const_data_ptr()), contents.nbytes()});
  return bytes;
}

/// Puts elements that follow one another where `strides` say.
void scatter(std::string_view elements, char* target, std::size_t width, const std::vector<std::int64_t>& sizes,
             const std::vector<std::int64_t>& strides) {
  std::vector<std::int64_t> index(sizes.size(), 0);
  for (std::size_t from = 0; from < elements.size(); from += width) {
    std::int64_t to = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) to += index[i] * strides[i];
    std::memcpy(target + static_cast<std::size_t>(to) * width, elements.data() + from, width);
    for (std::size_t i = sizes.size(); i-- > 0 && ++index[i] == sizes[i];) index[i] = 0;
  }
}

at::Tensor load_tensor(std::string_view bytes) {
  ByteReader reader(bytes);
  const std::uint64_t dtype = reader.read_number();
  THUNDER_CHECK(dtype <= static_cast<std::uint64_t>(ir::Dtype::kFloat8E8m0fnu), "bridge", "no such dtype");
  const c10::Device device = read_device(reader);
  const bool is_wrapped_number = reader.read_number() != 0;
  std::vector<std::int64_t> sizes(reader.read_count());
  std::vector<std::int64_t> strides(sizes.size());
  for (std::int64_t& size : sizes) size = reader.read_signed();
  for (std::int64_t& stride : strides) stride = reader.read_signed();
  const std::string_view elements = reader.read_text();
  const auto extent = extent_of(sizes, strides);
  const auto width = static_cast<std::size_t>(ir::size_of(static_cast<ir::Dtype>(dtype)));
  const auto count = static_cast<std::size_t>(c10::multiply_integers(sizes));
  THUNDER_CHECK(extent && elements.size() == count * width && reader.is_at_end(), "bridge", "a tensor lacks elements");
  THUNDER_CHECK(device.is_cpu() || device.is_cuda(), "bridge", "a tensor of another device");
  if (default_generator(device) == nullptr) {
    throw UserError(ErrorKind::kValue, "expected a device of this machine, got a tensor on " + device.str());
  }
  at::Tensor memory = at::zeros({*extent}, at::TensorOptions().dtype(to_torch(static_cast<ir::Dtype>(dtype))));
  scatter(elements, static_cast<char*>(memory.mutable_data_ptr()), width, sizes, strides);
  at::Tensor tensor = memory.to(device).as_strided(sizes, strides);
  if (is_wrapped_number && sizes.empty()) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

std::optional<std::string> store(const ir::TraceContext::Object& object) {
  if (object.kind == ObjectKind::kTensor) return store_tensor(*static_cast<const at::Tensor*>(object.owner.get()));
  if (object.kind != ObjectKind::kGenerator) return std::nullopt;
  const at::Generator generator = static_cast<const c10::IValue*>(object.owner.get())->toGenerator();
  const at::Generator* usual = default_generator(generator.device());
  if (usual == nullptr || *usual != generator) return std::nullopt;
  std::string bytes;
  ByteWriter writer(bytes);
  write_device(writer, generator.device());
  return bytes;
}

std::shared_ptr<void> load(ObjectKind kind, std::string_view bytes) {
  if (kind == ObjectKind::kTensor) return std::make_shared<at::Tensor>(load_tensor(bytes));
  THUNDER_CHECK(kind == ObjectKind::kGenerator, "bridge", "an object that cannot be stored");
  ByteReader reader(bytes);
  const c10::Device device = read_device(reader);
  const at::Generator* generator = default_generator(device);
  if (generator != nullptr) return std::make_shared<c10::IValue>(*generator);
  throw UserError(ErrorKind::kValue, "expected a device of this machine, got the generator of " + device.str());
}

}  // namespace

const ir::ConstantStorage& constant_storage() {
  static const ir::ConstantStorage kStorage{&store, &load};
  return kStorage;
}

}  // namespace thunder::bridge
