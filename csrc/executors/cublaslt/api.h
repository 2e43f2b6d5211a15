#pragma once

#include <cstddef>
#include <cstdint>

namespace thunder::executors::cublaslt {

/// A way to compute a matmul, as the library's heuristics give it (`cublasLtMatmulHeuristicResult_t`).
struct Algorithm {
  std::uint64_t data[8];
  std::size_t workspace;  ///< bytes that it needs
  int state;              ///< 0: it may run
  float waves;
  int reserved[4];
};

/// The functions of cuBLASLt that matmuls need, from the library that the process has loaded, or would load. The
/// declarations are ours: thunder builds without CUDA. They and the numbers below are those of `cublasLt.h`, which the
/// versions 12 and 13 have in common.
struct Api {
  using Status = int;
  using Handle = void*;

  Status (*create)(Handle* library) = nullptr;
  Status (*create_matmul)(Handle* matmul, int compute, int scale) = nullptr;
  Status (*set_matmul)(Handle matmul, int attribute, const void* value, std::size_t bytes) = nullptr;
  Status (*create_layout)(Handle* layout, int type, std::uint64_t rows, std::uint64_t columns,
                          std::int64_t stride) = nullptr;
  Status (*create_preference)(Handle* preference) = nullptr;
  Status (*set_preference)(Handle preference, int attribute, const void* value, std::size_t bytes) = nullptr;
  Status (*destroy_matmul)(Handle matmul) = nullptr;
  Status (*destroy_layout)(Handle layout) = nullptr;
  Status (*destroy_preference)(Handle preference) = nullptr;
  Status (*find_algorithms)(Handle library, Handle matmul, Handle a, Handle b, Handle c, Handle d, Handle preference,
                            int most, Algorithm* found, int* count) = nullptr;
  Status (*run)(Handle library, Handle matmul, const void* alpha, const void* a, Handle a_layout, const void* b,
                Handle b_layout, const void* beta, const void* c, Handle c_layout, void* d, Handle d_layout,
                const Algorithm* algorithm, void* workspace, std::size_t bytes, void* stream) = nullptr;
  const char* (*text)(Status status) = nullptr;

  /// Null where there is no such library.
  [[nodiscard]] static const Api* find();
};

// Values of the enumerations of `cublasLt.h`, `cublas_api.h` and `library_types.h`.
enum DataType : std::int32_t { kFloat32 = 0, kFloat16 = 2, kBfloat16 = 14 };
enum ComputeType : std::int32_t { kCompute32F = 68 };
enum MatmulAttribute : std::int32_t {
  kTransposeA = 3,
  kTransposeB = 4,
  kEpilogue = 7,
  kBiasPointer = 8,
  kAuxiliaryPointer = 11,
  kAuxiliaryStride = 12,
};
enum PreferenceAttribute : std::int32_t { kMostWorkspace = 1, kReductions = 3 };
enum Reduction : std::uint32_t { kNoReduction = 0, kInComputeType = 2, kAnyReduction = 7 };
enum class Epilogue : std::uint32_t {
  kNone = 1,
  kBias = 4,
  kGelu = 32,
  kGeluBias = 36,
  kGeluAuxiliary = 160,  ///< also stores what the GELU is of
  kGeluAuxiliaryBias = 164,
  kGeluGradient = 192,      ///< times the derivative of a GELU of the auxiliary matrix
  kGeluGradientBias = 208,  ///< and sums the columns
};

}  // namespace thunder::executors::cublaslt
