#include "bridge/convert.h"

#include <ATen/core/jit_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/Layout.h>

#include <string>
#include <utility>

#include "base/error.h"

namespace thunder::bridge {
namespace {

constexpr std::pair<ir::Dtype, at::ScalarType> kDtypes[] = {
    {ir::Dtype::kBool, at::kBool},
    {ir::Dtype::kUint8, at::kByte},
    {ir::Dtype::kUint16, at::kUInt16},
    {ir::Dtype::kUint32, at::kUInt32},
    {ir::Dtype::kUint64, at::kUInt64},
    {ir::Dtype::kInt8, at::kChar},
    {ir::Dtype::kInt16, at::kShort},
    {ir::Dtype::kInt32, at::kInt},
    {ir::Dtype::kInt64, at::kLong},
    {ir::Dtype::kFloat16, at::kHalf},
    {ir::Dtype::kBfloat16, at::kBFloat16},
    {ir::Dtype::kFloat32, at::kFloat},
    {ir::Dtype::kFloat64, at::kDouble},
    {ir::Dtype::kComplex32, at::kComplexHalf},
    {ir::Dtype::kComplex64, at::kComplexFloat},
    {ir::Dtype::kComplex128, at::kComplexDouble},
    {ir::Dtype::kFloat8E4m3fn, at::kFloat8_e4m3fn},
    {ir::Dtype::kFloat8E5m2, at::kFloat8_e5m2},
    {ir::Dtype::kFloat8E4m3fnuz, at::kFloat8_e4m3fnuz},
    {ir::Dtype::kFloat8E5m2fnuz, at::kFloat8_e5m2fnuz},
    {ir::Dtype::kFloat8E8m0fnu, at::kFloat8_e8m0fnu},
};
constexpr std::pair<ir::DeviceType, c10::DeviceType> kDeviceTypes[] = {
    {ir::DeviceType::kCpu, c10::kCPU},
    {ir::DeviceType::kCuda, c10::kCUDA},
    {ir::DeviceType::kMeta, c10::kMeta},
};
constexpr std::pair<ir::Layout, c10::Layout> kLayouts[] = {
    {ir::Layout::kStrided, c10::kStrided},     {ir::Layout::kSparse, c10::kSparse},
    {ir::Layout::kSparseCsr, c10::kSparseCsr}, {ir::Layout::kSparseCsc, c10::kSparseCsc},
    {ir::Layout::kSparseBsr, c10::kSparseBsr}, {ir::Layout::kSparseBsc, c10::kSparseBsc},
    {ir::Layout::kMkldnn, c10::kMkldnn},       {ir::Layout::kJagged, c10::kJagged},
};
constexpr std::pair<ir::MemoryFormat, at::MemoryFormat> kMemoryFormats[] = {
    {ir::MemoryFormat::kContiguous, at::MemoryFormat::Contiguous},
    {ir::MemoryFormat::kPreserve, at::MemoryFormat::Preserve},
    {ir::MemoryFormat::kChannelsLast, at::MemoryFormat::ChannelsLast},
    {ir::MemoryFormat::kChannelsLast3d, at::MemoryFormat::ChannelsLast3d},
};

template <typename Ours, typename Torchs, std::size_t size>
Torchs find_torch(const std::pair<Ours, Torchs> (&rows)[size], Ours ours) {
  for (const auto& [candidate, result] : rows) {
    if (candidate == ours) return result;
  }
  throw InternalError("bridge", "a value without a counterpart in torch");
}

template <typename Ours, typename Torchs, std::size_t size>
Ours find_ours(const std::pair<Ours, Torchs> (&rows)[size], Torchs torchs, const std::string& what) {
  for (const auto& [result, candidate] : rows) {
    if (candidate == torchs) return result;
  }
  throw UserError(ErrorKind::kNotImplemented, "thunder does not support " + what);
}

template <typename Build>
c10::IValue list_of_tensors(const ir::ArgumentList& list, const c10::Type& element, const ArgumentWriter& writer,
                            Build&& build) {
  auto result = build();
  result.reserve(list.size());
  for (const ir::Argument& item : list) {
    c10::IValue value = to_ivalue(item, element, writer);
    result.push_back(value.isNone() ? at::Tensor() : value.toTensor());
  }
  return result;
}

c10::IValue list_to_ivalue(const ir::ArgumentList& list, const c10::Type& type, const ArgumentWriter& writer) {
  const c10::Type& element = *type.containedType(0);
  switch (element.kind()) {
    case c10::TypeKind::TensorType:
      return list_of_tensors(list, element, writer, [] { return c10::List<at::Tensor>(); });
    case c10::TypeKind::OptionalType:
      if (element.containedType(0)->kind() == c10::TypeKind::TensorType) {
        c10::List<std::optional<at::Tensor>> result;
        for (const ir::Argument& item : list)
          result.push_back(to_ivalue(item, element, writer).toOptional<at::Tensor>());
        return result;
      }
      break;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: {
      c10::List<std::int64_t> result;
      for (const ir::Argument& item : list) result.push_back(std::get<std::int64_t>(item.content));
      return result;
    }
    case c10::TypeKind::FloatType: {
      c10::List<double> result;
      for (const ir::Argument& item : list) result.push_back(to_ivalue(item, element, writer).toDouble());
      return result;
    }
    case c10::TypeKind::BoolType: {
      c10::List<bool> result;
      for (const ir::Argument& item : list) result.push_back(std::get<bool>(item.content));
      return result;
    }
    default:
      break;
  }
  c10::impl::GenericList result(type.containedType(0));
  for (const ir::Argument& item : list) result.push_back(to_ivalue(item, element, writer));
  return result;
}

c10::IValue number_as_tensor(const c10::Scalar& number) {
  at::Tensor tensor = at::scalar_tensor(number, at::TensorOptions(number.type()).device(c10::kCPU));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

ir::Argument int_argument(std::int64_t value, const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::ScalarTypeType:
      return from_torch(static_cast<at::ScalarType>(value));
    case c10::TypeKind::LayoutType:
      return from_torch(static_cast<c10::Layout>(value));
    case c10::TypeKind::MemoryFormatType:
      return from_torch(static_cast<at::MemoryFormat>(value));
    default:
      return value;
  }
}

/// Read without the dispatcher, which may be recording.
ir::Argument wrapped_number(const at::Tensor& tensor) {
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case at::kBool:
      return *static_cast<const bool*>(data);
    case at::kLong:
      return *static_cast<const std::int64_t*>(data);
    case at::kComplexDouble:
      return *static_cast<const std::complex<double>*>(data);
    case at::kDouble:
      return *static_cast<const double*>(data);
    case at::kUInt64:
      throw UserError(ErrorKind::kNotImplemented, "integers of 2**63 and more beside tensors are not supported");
    default:
      throw InternalError("bridge", "a wrapped number of an unexpected dtype");
  }
}

}  // namespace

at::ScalarType to_torch(ir::Dtype dtype) { return find_torch(kDtypes, dtype); }
ir::Dtype from_torch(at::ScalarType dtype) {
  return find_ours(kDtypes, dtype, std::string("the dtype ") + c10::toString(dtype));
}
c10::Device to_torch(ir::Device device) {
  return {find_torch(kDeviceTypes, device.type), static_cast<c10::DeviceIndex>(device.index)};
}
ir::Device from_torch(c10::Device device) {
  return {find_ours(kDeviceTypes, device.type(), "the device " + device.str()), device.index()};
}
c10::Layout to_torch(ir::Layout layout) { return find_torch(kLayouts, layout); }
ir::Layout from_torch(c10::Layout layout) { return find_ours(kLayouts, layout, "this tensor layout"); }
at::MemoryFormat to_torch(ir::MemoryFormat format) { return find_torch(kMemoryFormats, format); }
ir::MemoryFormat from_torch(at::MemoryFormat format) { return find_ours(kMemoryFormats, format, "this memory format"); }

std::vector<std::int64_t> hints(const ir::Dims& dims) {
  std::vector<std::int64_t> result;
  result.reserve(dims.size());
  for (const ir::Dim& dim : dims) result.push_back(dim.hint);
  return result;
}

ir::Dims to_dims(c10::IntArrayRef numbers) { return {numbers.begin(), numbers.end()}; }

ir::TensorType type_of(const at::Tensor& tensor) {
  ir::TensorType type;
  type.layout = from_torch(tensor.layout());
  if (type.layout != ir::Layout::kStrided || tensor.is_nested()) {
    throw UserError(ErrorKind::kNotImplemented, "expected a dense (strided) tensor, got layout " +
                                                    std::string(ir::torch_name(type.layout)) +
                                                    "; convert it with .to_dense() before it is used here");
  }
  type.dtype = from_torch(tensor.scalar_type());
  type.device = from_torch(tensor.device());
  type.requires_grad = tensor.requires_grad();
  type.sizes = to_dims(tensor.sizes());
  type.strides = to_dims(tensor.strides());
  type.storage_offset = tensor.storage_offset();
  return type;
}

ir::Argument to_argument(const c10::IValue& value, const c10::Type& type, const ArgumentReader& reader) {
  if (value.isNone()) return ir::None{};
  if (type.kind() == c10::TypeKind::OptionalType) return to_argument(value, *type.containedType(0), reader);
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return ir::None{};
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && tensor.has_storage() && tensor.is_cpu() &&
        !tensor.key_set().has(c10::DispatchKey::Fake)) {
      return wrapped_number(tensor);
    }
    return reader.tensor(tensor);
  }
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return int_argument(value.toInt(), type);
  if (value.isSymInt()) return value.toSymInt().guard_int(__FILE__, __LINE__);
  if (value.isDouble()) return value.toDouble();
  if (value.isComplexDouble()) return static_cast<std::complex<double>>(value.toComplexDouble());
  if (value.isString()) return value.toStringRef();
  if (value.isDevice()) return from_torch(value.toDevice());
  if (value.isList()) {
    ir::ArgumentList list;
    const c10::Type& element = type.containedTypes().empty() ? type : *type.containedType(0);
    for (const c10::IValue& item : value.toListRef()) list.push_back(to_argument(item, element, reader));
    return list;
  }
  return reader.object(value);
}

c10::IValue to_ivalue(const ir::Argument& argument, const c10::Type& type, const ArgumentWriter& writer) {
  if (argument.is<ir::None>())
    return type.kind() == c10::TypeKind::TensorType ? c10::IValue(at::Tensor()) : c10::IValue();
  if (const auto* id = argument.get<ir::ValueId>()) return writer.value(*id);
  if (const auto* object = argument.get<ir::ObjectConstant>()) return writer.object(*object);
  if (type.kind() == c10::TypeKind::OptionalType) return to_ivalue(argument, *type.containedType(0), writer);
  if (const auto* list = argument.get<ir::ArgumentList>()) return list_to_ivalue(*list, type, writer);
  const bool as_tensor = type.kind() == c10::TypeKind::TensorType;
  const bool as_float = type.kind() == c10::TypeKind::FloatType;
  if (const auto* number = argument.get<bool>()) return as_tensor ? number_as_tensor(*number) : c10::IValue(*number);
  if (const auto* number = argument.get<std::int64_t>()) {
    if (as_tensor) return number_as_tensor(*number);
    return as_float ? c10::IValue(static_cast<double>(*number)) : c10::IValue(*number);
  }
  if (const auto* number = argument.get<double>()) return as_tensor ? number_as_tensor(*number) : c10::IValue(*number);
  if (const auto* number = argument.get<std::complex<double>>()) {
    const c10::complex<double> value(number->real(), number->imag());
    return as_tensor ? number_as_tensor(value) : c10::IValue(value);
  }
  if (const auto* text = argument.get<std::string>()) return *text;
  if (const auto* dtype = argument.get<ir::Dtype>()) return static_cast<std::int64_t>(to_torch(*dtype));
  if (const auto* device = argument.get<ir::Device>()) return to_torch(*device);
  if (const auto* layout = argument.get<ir::Layout>()) return static_cast<std::int64_t>(to_torch(*layout));
  if (const auto* format = argument.get<ir::MemoryFormat>()) return static_cast<std::int64_t>(to_torch(*format));
  throw InternalError("bridge", "an argument without a counterpart in torch");
}

}  // namespace thunder::bridge
