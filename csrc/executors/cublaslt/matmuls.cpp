#include "executors/cublaslt/matmuls.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "base/error.h"

namespace thunder::executors::cublaslt {
namespace {

constexpr std::int64_t kVectorBytes = 16;  ///< bytes

class Gpu : public Device {
 public:
  [[nodiscard]] const Api* api() const override { return Api::find(); }
  [[nodiscard]] void* stream(at::Device device) const override {
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
  }
};

/// The most bytes that an algorithm may need: as many as PyTorch gives the library, by the variable that it reads, in
/// KiB, or as it does on a Hopper GPU.
std::uint64_t most_workspace() {
  constexpr std::uint64_t kKib = 1024;
  constexpr std::uint64_t kUsual = 32 * 1024 * kKib;
  const char* given = std::getenv("CUBLASLT_WORKSPACE_SIZE");
  if (given == nullptr) return kUsual;
  char* end = nullptr;
  const unsigned long long number = std::strtoull(given, &end, 10);
  return end == given || *end != '\0' ? kUsual : number * kKib;
}

bool is_aligned(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % kVectorBytes == 0;
}

/// Partial sums that a setting of `torch.backends.cuda.matmul` allows; releases of PyTorch before 2.9 know two choices.
template <typename Choice>
std::uint32_t reductions_of(Choice choice) {
  if constexpr (std::is_same_v<Choice, bool>) {
    return choice ? kAnyReduction : kInComputeType;
  } else {
    constexpr std::array<std::uint32_t, 3> kMasks{kAnyReduction, kInComputeType, kNoReduction};
    return kMasks.at(static_cast<std::size_t>(choice));
  }
}

std::uint32_t allowed_reductions(at::ScalarType dtype) {
  const at::Context& context = at::globalContext();
  return dtype == at::kBFloat16 ? reductions_of(context.allowBF16ReductionCuBLAS())
                                : reductions_of(context.allowFP16ReductionCuBLAS());
}

/// Whether the user's settings ask for arithmetic that the epilogues do not have, or do not promise.
bool are_settings_plain(at::ScalarType dtype) {
  const at::Context& context = at::globalContext();
  return !context.deterministicAlgorithms() && !(dtype == at::kHalf && context.allowFP16AccumulationCuBLAS());
}

int data_type(at::ScalarType dtype) { return dtype == at::kBFloat16 ? kBfloat16 : kFloat16; }

void require(const Api& api, Api::Status status, const char* doing) {
  if (status == 0) return;
  throw UserError(ErrorKind::kRuntime, std::string("cublaslt: ") + doing + ": " + api.text(status) + " (error " +
                                           std::to_string(status) + ")");
}

}  // namespace

const Device& gpu() {
  static const auto* const kGpu = new Gpu;
  return *kGpu;
}

std::optional<Operand> operand_of(const at::Tensor& matrix) {
  if (matrix.dim() != 2 || matrix.numel() == 0 || !is_aligned(matrix)) return std::nullopt;
  Operand operand;
  if (matrix.stride(1) == 1 && matrix.stride(0) >= matrix.size(1)) {
    operand = {matrix.stride(0), false};
  } else if (matrix.stride(0) == 1 && matrix.stride(1) >= matrix.size(0)) {
    operand = {matrix.stride(1), true};
  } else {
    return std::nullopt;
  }
  const bool is_vector_wise = operand.stride * static_cast<std::int64_t>(matrix.element_size()) % kVectorBytes == 0;
  return is_vector_wise ? std::make_optional(operand) : std::nullopt;
}

/// A problem as the library describes it, and the algorithm that it has for it. The library's matrices are by columns:
/// ours, read that way, are transposed, and so is the result. So A is the right operand, B the left one.
class Matmuls::Plan {
 public:
  Plan(const Api& api, const Problem& problem, Api::Handle library) : api_(api), library_(library) {
    require(api, api.create_matmul(&matmul_, kCompute32F, kFloat32), "describing a matmul");
    set(kTransposeA, static_cast<std::int32_t>(problem.right.is_by_columns));
    set(kTransposeB, static_cast<std::int32_t>(problem.left.is_by_columns));
    set(kEpilogue, static_cast<std::uint32_t>(problem.epilogue));
    set(kAuxiliaryStride, problem.columns);
    const int type = data_type(problem.dtype);
    const auto describe = [&](Api::Handle& layout, std::int64_t rows, std::int64_t columns, const Operand& operand) {
      if (operand.is_by_columns) std::swap(rows, columns);
      require(api,
              api.create_layout(&layout, type, static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows),
                                operand.stride),
              "describing a matrix");
    };
    describe(a_, problem.inner, problem.columns, problem.right);
    describe(b_, problem.rows, problem.inner, problem.left);
    describe(d_, problem.rows, problem.columns, {problem.columns, false});
    reductions_ = problem.reductions;
  }
  ~Plan() {
    for (Api::Handle layout : {a_, b_, d_}) {
      if (layout != nullptr) static_cast<void>(api_.destroy_layout(layout));
    }
    if (matmul_ != nullptr) static_cast<void>(api_.destroy_matmul(matmul_));
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// The library goes by the addresses of bias and auxiliary matrix, too, so these are set first.
  void set_addresses(const Tensors& tensors) {
    if (tensors.bias.defined()) set(kBiasPointer, tensors.bias.data_ptr());
    if (tensors.auxiliary.defined()) set(kAuxiliaryPointer, tensors.auxiliary.data_ptr());
  }

  void find_algorithm() {
    Api::Handle preference = nullptr;
    require(api_, api_.create_preference(&preference), "asking for algorithms");
    struct Guard {
      const Api& api;
      Api::Handle preference;
      ~Guard() { static_cast<void>(api.destroy_preference(preference)); }
    } const guard{api_, preference};
    const std::uint64_t workspace = most_workspace();
    require(api_, api_.set_preference(preference, kMostWorkspace, &workspace, sizeof workspace),
            "asking for algorithms");
    require(api_, api_.set_preference(preference, kReductions, &reductions_, sizeof reductions_),
            "asking for algorithms");
    int count = 0;
    const Api::Status status =
        api_.find_algorithms(library_, matmul_, a_, b_, d_, d_, preference, 1, &algorithm_, &count);
    has_algorithm_ = status == 0 && count > 0 && algorithm_.state == 0;
  }

  [[nodiscard]] bool has_algorithm() const { return has_algorithm_; }

  void run(const Tensors& tensors, void* stream) const {
    const float one = 1;
    const float zero = 0;
    const at::Tensor workspace =
        algorithm_.workspace == 0
            ? at::Tensor()
            : at::empty({static_cast<std::int64_t>(algorithm_.workspace)}, tensors.result.options().dtype(at::kByte));
    void* const result = tensors.result.data_ptr();
    require(api_,
            api_.run(library_, matmul_, &one, tensors.right.const_data_ptr(), a_, tensors.left.const_data_ptr(), b_,
                     &zero, result, d_, result, d_, &algorithm_, workspace.defined() ? workspace.data_ptr() : nullptr,
                     algorithm_.workspace, stream),
            "running a matmul");
  }

 private:
  template <typename Value>
  void set(MatmulAttribute attribute, Value value) {
    require(api_, api_.set_matmul(matmul_, attribute, &value, sizeof value), "describing a matmul");
  }

  const Api& api_;
  Api::Handle library_;
  Api::Handle matmul_ = nullptr;
  Api::Handle a_ = nullptr;
  Api::Handle b_ = nullptr;
  Api::Handle d_ = nullptr;
  std::uint32_t reductions_ = kAnyReduction;
  Algorithm algorithm_{};
  bool has_algorithm_ = false;
};

Matmuls::Matmuls(const Device& device) : device_(device) {}
Matmuls::~Matmuls() = default;

Matmuls::Plan& Matmuls::plan_of(const Problem& problem, const Tensors& tensors) {
  std::unique_ptr<Plan>& plan = plans_[problem];
  if (plan == nullptr) {
    Api::Handle& library = libraries_[problem.device];
    const Api& api = *device_.api();
    if (library == nullptr) require(api, api.create(&library), "starting the library");
    auto made = std::make_unique<Plan>(api, problem, library);
    made->set_addresses(tensors);
    made->find_algorithm();
    plan = std::move(made);
  } else {
    plan->set_addresses(tensors);
  }
  return *plan;
}

bool Matmuls::run(Epilogue epilogue, const Tensors& tensors) {
  const at::ScalarType dtype = tensors.result.scalar_type();
  const auto left = operand_of(tensors.left);
  const auto right = operand_of(tensors.right);
  const bool is_readable = left && right && operand_of(tensors.result) &&
                           (!tensors.bias.defined() || is_aligned(tensors.bias)) &&
                           (!tensors.auxiliary.defined() || is_aligned(tensors.auxiliary));
  if (!is_readable || device_.api() == nullptr || !are_settings_plain(dtype)) return false;
  const at::Device device = tensors.result.device();
  const Problem problem{dtype, epilogue, tensors.result.size(0),    tensors.result.size(1), tensors.left.size(1),
                        *left, *right,   allowed_reductions(dtype), device.index()};
  // A description holds addresses, so that one call uses it at a time. Starting a kernel takes microseconds.
  const std::scoped_lock lock(mutex_);
  const Plan& plan = plan_of(problem, tensors);
  if (!plan.has_algorithm()) return false;
  plan.run(tensors, device_.stream(device));
  return true;
}

}  // namespace thunder::executors::cublaslt
