#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numbers>
#include <vector>

#include "check.h"
#include "executors/cublaslt/matmuls.h"

/// cuBLASLt's functions on the processor, for tensors of the CPU: they check what they are told, and compute element by
/// element, by columns as the library does.
namespace thunder::check::cublaslt {

using executors::cublaslt::Algorithm;
using executors::cublaslt::Api;
using executors::cublaslt::Epilogue;

struct Matmul {
  std::map<int, std::vector<std::byte>> attributes;

  template <typename Value>
  [[nodiscard]] Value get(int attribute, Value otherwise = {}) const {
    const auto found = attributes.find(attribute);
    if (found == attributes.end()) return otherwise;
    CHECK(found->second.size() == sizeof(Value));
    Value value;
    std::memcpy(&value, found->second.data(), sizeof value);
    return value;
  }
};
struct Layout {
  int type = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
};
struct Preference {
  std::map<int, std::uint64_t> attributes;
};

/// Calls of the library; tests set whether it has an algorithm.
struct Log {
  int runs = 0;
  int searches = 0;
  int alive = 0;  ///< descriptions that were not destroyed
  bool has_algorithm = true;
  std::uint64_t reductions = 0;
  std::uint64_t most_workspace = 0;
  Epilogue epilogue = Epilogue::kNone;
};
inline Log& log() {
  static Log log;
  return log;
}

inline double element(const void* data, int type, std::int64_t i) {
  return type == executors::cublaslt::kBfloat16 ? static_cast<double>(static_cast<const at::BFloat16*>(data)[i])
                                                : static_cast<double>(static_cast<const at::Half*>(data)[i]);
}
inline void store(void* data, int type, std::int64_t i, double value) {
  const auto narrow = static_cast<float>(value);
  if (type == executors::cublaslt::kBfloat16) {
    static_cast<at::BFloat16*>(data)[i] = narrow;
  } else {
    static_cast<at::Half*>(data)[i] = narrow;
  }
}

inline double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
inline double gelu_slope(double x) {
  const double tail = std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x));
  const double slope = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + tail) + 0.5 * x * (1 - tail * tail) * slope;
}

inline bool is_aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

inline Api::Status run(Api::Handle library, Api::Handle matmul, const void* alpha, const void* a, Api::Handle a_layout,
                       const void* b, Api::Handle b_layout, const void* beta, const void* c, Api::Handle c_layout,
                       void* d, Api::Handle d_layout, const Algorithm* algorithm, void* workspace, std::size_t bytes,
                       void* stream) {
  using namespace executors::cublaslt;  // NOLINT(google-build-using-namespace): the numbers
  const auto& call = *static_cast<const Matmul*>(matmul);
  const Layout& left = *static_cast<const Layout*>(a_layout);
  const Layout& right = *static_cast<const Layout*>(b_layout);
  const Layout& result = *static_cast<const Layout*>(d_layout);
  CHECK(library != nullptr && c == d && c_layout == d_layout && stream == library);
  CHECK(*static_cast<const float*>(alpha) == 1 && *static_cast<const float*>(beta) == 0);
  CHECK(algorithm->workspace == bytes && (bytes == 0) == (workspace == nullptr));
  CHECK(left.type == right.type && left.type == result.type);
  const bool turns_a = call.get<std::int32_t>(kTransposeA) == 1;
  const bool turns_b = call.get<std::int32_t>(kTransposeB) == 1;
  const std::int64_t inner = turns_a ? left.rows : left.columns;
  CHECK((turns_a ? left.columns : left.rows) == result.rows &&
        (turns_b ? right.rows : right.columns) == result.columns);
  CHECK((turns_b ? right.columns : right.rows) == inner);
  for (const Layout* layout : {&left, &right, &result})
    CHECK(layout->stride >= layout->rows && layout->stride % 8 == 0);
  CHECK(is_aligned(a) && is_aligned(b) && is_aligned(d));
  const auto kind = static_cast<Epilogue>(call.get<std::uint32_t>(kEpilogue, 1));
  const auto bits = static_cast<std::uint32_t>(kind);
  const bool is_gradient = (bits & 64U) != 0;
  auto* const bias = call.get<void*>(kBiasPointer);
  auto* const auxiliary = call.get<void*>(kAuxiliaryPointer);
  const auto stride = call.get<std::int64_t>(kAuxiliaryStride);
  if ((bits & (4U | 16U)) != 0) CHECK(bias != nullptr && is_aligned(bias));
  if ((bits & 128U) != 0)
    CHECK(auxiliary != nullptr && is_aligned(auxiliary) && stride % 8 == 0 && stride >= result.rows);
  std::vector<double> sums(static_cast<std::size_t>(result.rows), 0.0);
  for (std::int64_t j = 0; j < result.columns; ++j) {
    for (std::int64_t i = 0; i < result.rows; ++i) {
      double sum = (bits & 4U) != 0 ? element(bias, result.type, i) : 0;
      for (std::int64_t k = 0; k < inner; ++k) {
        sum += element(a, left.type, turns_a ? k + i * left.stride : i + k * left.stride) *
               element(b, right.type, turns_b ? j + k * right.stride : k + j * right.stride);
      }
      if (is_gradient) {
        sum *= gelu_slope(element(auxiliary, result.type, i + j * stride));
        sums[static_cast<std::size_t>(i)] += sum;
      } else if ((bits & 128U) != 0) {
        store(auxiliary, result.type, i + j * stride, sum);
      }
      store(d, result.type, i + j * result.stride, (bits & 32U) != 0 ? gelu(sum) : sum);
    }
  }
  for (std::int64_t i = 0; (bits & 16U) != 0 && i < result.rows; ++i)
    store(bias, result.type, i, sums[static_cast<std::size_t>(i)]);
  ++log().runs;
  log().epilogue = kind;
  return 0;
}

inline Api::Status find_algorithms(Api::Handle library, Api::Handle matmul, Api::Handle a, Api::Handle b, Api::Handle c,
                                   Api::Handle d, Api::Handle preference, int most, Algorithm* found, int* count) {
  CHECK(library != nullptr && matmul != nullptr && a != nullptr && b != nullptr && c == d && most == 1);
  const auto& attributes = static_cast<const Preference*>(preference)->attributes;
  log().most_workspace = attributes.at(executors::cublaslt::kMostWorkspace);
  ++log().searches;
  log().reductions = attributes.at(executors::cublaslt::kReductions);
  if (!log().has_algorithm) return 15;  // CUBLAS_STATUS_NOT_SUPPORTED
  *found = Algorithm{};
  found->workspace = 1024;
  *count = 1;
  return 0;
}

template <typename Object>
Api::Status destroy(Api::Handle handle) {
  delete static_cast<Object*>(handle);
  --log().alive;
  return 0;
}

inline const Api& api() {
  static const Api kApi = [] {
    Api api;
    api.create = [](Api::Handle* library) {
      *library = &log();
      return 0;
    };
    api.create_matmul = [](Api::Handle* matmul, int compute, int scale) {
      CHECK(compute == 68 && scale == 0);
      *matmul = new Matmul;
      return ++log().alive, 0;
    };
    api.set_matmul = [](Api::Handle matmul, int attribute, const void* value, std::size_t bytes) {
      const auto* begin = static_cast<const std::byte*>(value);
      static_cast<Matmul*>(matmul)->attributes[attribute].assign(begin, begin + bytes);
      return 0;
    };
    api.create_layout = [](Api::Handle* layout, int type, std::uint64_t rows, std::uint64_t columns,
                           std::int64_t stride) {
      *layout = new Layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), stride};
      return ++log().alive, 0;
    };
    api.create_preference = [](Api::Handle* preference) {
      *preference = new Preference;
      return ++log().alive, 0;
    };
    api.set_preference = [](Api::Handle preference, int attribute, const void* value, std::size_t bytes) {
      std::uint64_t number = 0;
      std::memcpy(&number, value, bytes);
      static_cast<Preference*>(preference)->attributes[attribute] = number;
      return 0;
    };
    api.destroy_matmul = &destroy<Matmul>;
    api.destroy_layout = &destroy<Layout>;
    api.destroy_preference = &destroy<Preference>;
    api.find_algorithms = &find_algorithms;
    api.run = &run;
    api.text = [](Api::Status) { return "an error"; };
    return api;
  }();
  return kApi;
}

class Host : public executors::cublaslt::Device {
 public:
  [[nodiscard]] const Api* api() const override { return &cublaslt::api(); }
  [[nodiscard]] void* stream(at::Device /*device*/) const override { return &log(); }
};

}  // namespace thunder::check::cublaslt
