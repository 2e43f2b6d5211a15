#include "executors/cuda/executor.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "base/disk_cache.h"
#include "base/error.h"
#include "check.h"
#include "executors/cuda/kernel_cache.h"
#include "executors/cuda/nvrtc.h"
#include "fusion/region.h"
#include "ir/builder.h"
#include "pass_operators.h"

namespace thunder::executors::cuda {
namespace {

const ir::Operator& kSin = passes::add_row("aten::sin(Tensor self) -> Tensor");
const ir::Operator& kExp = passes::add_row("aten::exp(Tensor self) -> Tensor");
const ir::Operator& kCopy = passes::add_row(
    "aten::_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? "
    "pin_memory=None, bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor");

ir::TypePtr on(ir::Device device) { return ir::tensor_type(ir::Dtype::kFloat32, {64, 512}, device); }

std::size_t blocks(const ir::Trace& trace) {
  const Executor& executor = cuda::executor();
  const auto fused = executor.fuse(executor, trace);
  if (!fused) return 0;
  return static_cast<std::size_t>(std::ranges::count_if(
      fused->symbols, [](const ir::BoundSymbol& symbol) { return fusion::is_fused_by(symbol, "cuda"); }));
}

constexpr ir::Device kFirst{ir::DeviceType::kCuda, 0};
constexpr ir::Device kSecond{ir::DeviceType::kCuda, 1};

}  // namespace

TEST(tensors_of_a_gpu_are_fused_and_others_are_not) {
  for (const ir::Device device : {kFirst, ir::Device{ir::DeviceType::kCpu}}) {
    ir::Trace trace("f", std::make_shared<ir::TraceContext>());
    const ir::ValueId x = trace.add_input(on(device));
    trace.outputs = {ir::add_call(trace, kExp, {ir::add_call(trace, kSin, {x}, on(device))}, on(device))};
    CHECK_EQ(blocks(trace), device == kFirst ? 1U : 0U);
  }
}

TEST(a_fusion_stays_on_one_gpu) {
  ir::Trace trace("f", std::make_shared<ir::TraceContext>());
  const ir::ValueId x = trace.add_input(on(kFirst));
  const ir::ValueId first = ir::add_call(trace, kExp, {ir::add_call(trace, kSin, {x}, on(kFirst))}, on(kFirst));
  const ir::None none;
  const ir::ValueId moved = ir::add_call(trace, kCopy, {first, none, none, none, none, false, none}, on(kSecond));
  trace.outputs = {ir::add_call(trace, kExp, {ir::add_call(trace, kSin, {moved}, on(kSecond))}, on(kSecond))};
  CHECK_EQ(blocks(trace), 2U);
}

TEST(text_that_is_no_cuda_is_our_error_with_the_compilers_message) {
  if (!has_nvrtc()) return;
  CHECK_THROWS(static_cast<void>(compile_to_cubin("extern \"C\" __global__ void f() { nothing(); }", 90)),
               InternalError);
}

TEST(machine_code_comes_from_the_disk_where_it_was_compiled_before) {
  if (!has_nvrtc()) return;
  namespace fs = std::filesystem;
  std::string pattern = (fs::temp_directory_path() / "thunder_cache_XXXXXX").string();
  const fs::path folder = mkdtemp(pattern.data());
  CHECK_EQ(setenv("THUNDER_CACHE_DIR", folder.c_str(), 1), 0);
  const std::string text = "extern \"C\" __global__ void f(float* x) { *x = 1; }";
  const std::string code = cached_cubin(text, 90);
  CHECK(code == compile_to_cubin(text, 90));
  DiskCache cache(folder / kKernelCache, 1 << 20);
  CHECK(cache.find(cubin_key(text, 90)) == code);
  CHECK(cubin_key(text, 90) != cubin_key(text, 80));
  cache.store(cubin_key(text, 90), "kept");
  CHECK_EQ(cached_cubin(text, 90), "kept");
  fs::remove_all(folder);
}

}  // namespace thunder::executors::cuda
