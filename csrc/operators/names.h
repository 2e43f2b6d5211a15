#pragma once

#include <array>
#include <string_view>

namespace thunder::operators {

/// The operator that gives memory of certain sizes and strides, without contents.
inline constexpr const char* kEmptyStrided = "aten::empty_strided";

// Operators that passes add to traces.
inline constexpr const char* kCat = "aten::cat";
inline constexpr const char* kClone = "aten::clone";
inline constexpr const char* kCast = "aten::_to_copy";
inline constexpr const char* kMul = "aten::mul";
inline constexpr const char* kPad = "aten::constant_pad_nd";
inline constexpr const char* kReshape = "aten::reshape";
inline constexpr const char* kView = "aten::view";
inline constexpr const char* kSlice = "aten::slice";
inline constexpr const char* kSum = "aten::sum";
inline constexpr const char* kUnsqueeze = "aten::unsqueeze";

// Collectives (`_c10d_functional`).
inline constexpr const char* kAllGather = "_c10d_functional::all_gather_into_tensor";
inline constexpr const char* kAllGatherCoalesced = "_c10d_functional::all_gather_into_tensor_coalesced";
inline constexpr const char* kAllReduce = "_c10d_functional::all_reduce";
inline constexpr const char* kAllReduceInPlace = "_c10d_functional::all_reduce_";
inline constexpr const char* kReduceScatter = "_c10d_functional::reduce_scatter_tensor";
inline constexpr const char* kReduceScatterCoalesced = "_c10d_functional::reduce_scatter_tensor_coalesced";
inline constexpr const char* kWaitTensor = "_c10d_functional::wait_tensor";

// Marks of transforms, which passes make collectives of (`tracer/parallel_operators.h`).
inline constexpr const char* kAverageGradient = "thunder::average_gradient";
inline constexpr const char* kGradientIfUsed = "thunder::gradient_if_used";
inline constexpr const char* kGatherShards = "thunder::gather_shards";
inline constexpr const char* kScatterGradient = "thunder::scatter_gradient";
inline constexpr const char* kReplicatedTogether = "thunder::replicated_together";
/// They hand their first argument on: only its gradient is another one.
inline constexpr std::array<std::string_view, 4> kGradientMarks{"thunder::replicated", "thunder::with_gradient_for",
                                                                "thunder::adds_gradient_of", "thunder::sums_gradient"};

}  // namespace thunder::operators
