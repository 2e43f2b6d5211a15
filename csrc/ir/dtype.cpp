#include "ir/dtype.h"

#include "base/error.h"

namespace thunder::ir {
namespace {

[[noreturn]] void unknown(const char* what) { throw InternalError("ir/dtype", std::string("unknown ") + what); }

}  // namespace

std::string_view torch_name(Dtype dtype) {
  switch (dtype) {
#define THUNDER_CASE(enumerator, torch_name, short_name, bytes) \
  case Dtype::enumerator:                                       \
    return torch_name;
    THUNDER_FORALL_DTYPES(THUNDER_CASE)
#undef THUNDER_CASE
  }
  unknown("dtype");
}

std::string_view short_name(Dtype dtype) {
  switch (dtype) {
#define THUNDER_CASE(enumerator, torch_name, short_name, bytes) \
  case Dtype::enumerator:                                       \
    return short_name;
    THUNDER_FORALL_DTYPES(THUNDER_CASE)
#undef THUNDER_CASE
  }
  unknown("dtype");
}

std::int64_t size_of(Dtype dtype) {
  switch (dtype) {
#define THUNDER_CASE(enumerator, torch_name, short_name, bytes) \
  case Dtype::enumerator:                                       \
    return bytes;
    THUNDER_FORALL_DTYPES(THUNDER_CASE)
#undef THUNDER_CASE
  }
  unknown("dtype");
}

bool is_complex(Dtype dtype) {
  return dtype == Dtype::kComplex32 || dtype == Dtype::kComplex64 || dtype == Dtype::kComplex128;
}

bool is_floating_point(Dtype dtype) { return short_name(dtype).front() == 'f' || dtype == Dtype::kBfloat16; }

std::string_view torch_name(DeviceType type) {
  switch (type) {
    case DeviceType::kCpu:
      return "cpu";
    case DeviceType::kCuda:
      return "cuda";
    case DeviceType::kMeta:
      return "meta";
    case DeviceType::kOther:
      return "privateuseone";
  }
  unknown("device type");
}

std::string_view torch_name(Layout layout) {
  switch (layout) {
    case Layout::kStrided:
      return "strided";
    case Layout::kSparse:
      return "sparse_coo";
    case Layout::kSparseCsr:
      return "sparse_csr";
    case Layout::kSparseCsc:
      return "sparse_csc";
    case Layout::kSparseBsr:
      return "sparse_bsr";
    case Layout::kSparseBsc:
      return "sparse_bsc";
    case Layout::kMkldnn:
      return "_mkldnn";
    case Layout::kJagged:
      return "jagged";
  }
  unknown("layout");
}

std::string_view torch_name(MemoryFormat format) {
  switch (format) {
    case MemoryFormat::kContiguous:
      return "contiguous_format";
    case MemoryFormat::kPreserve:
      return "preserve_format";
    case MemoryFormat::kChannelsLast:
      return "channels_last";
    case MemoryFormat::kChannelsLast3d:
      return "channels_last_3d";
  }
  unknown("memory format");
}

}  // namespace thunder::ir
