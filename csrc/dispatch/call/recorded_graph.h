#pragma once

#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "interpreter/python/python_ref.h"
#include "runtime/graph_runner.h"

namespace thunder::dispatch {

/// The kernels of a program for certain inputs, recorded as a CUDA graph: one launch for all of them, which read
/// and write the same memory each time. It is for one stream, and for the settings under which PyTorch chose kernels.
/// Needs the GIL.
class RecordedGraph {
 public:
  using Run = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

  /// Records, in place of running. Inputs that `moves` names are copied to memory of the graph at each launch, the
  /// others are used where they lie. Graphs without a pool of their own share the memory of their stream: another one's
  /// launch overwrites their results. Throws what PyTorch throws, among others for what cannot be recorded.
  RecordedGraph(const std::vector<at::Tensor>& inputs, const std::vector<bool>& moves, const Run& run,
                PyObject* pool = nullptr);
  /// Memory for graphs whose results are still needed when graphs of other programs are launched.
  [[nodiscard]] static py::Ref new_pool(c10::Device device);

  /// Whether the inputs that are not copied lie where they did.
  [[nodiscard]] bool fits(const std::vector<at::Tensor>& inputs) const;
  /// Whether it is for this thread's stream, and the settings of now, and no recording of the user's is under way.
  [[nodiscard]] bool is_for_now() const;
  /// Runs once more. What it gives is in `results()`, until the next launch.
  void launch(const std::vector<at::Tensor>& inputs);

  /// An undefined one is undefined each time.
  [[nodiscard]] const std::vector<at::Tensor>& results() const { return results_; }
  /// The input that a result is, or -1.
  [[nodiscard]] std::int64_t input_of(std::size_t result) const { return returned_[result]; }
  /// Whether a tensor begins where a result does, or an input that is not copied.
  [[nodiscard]] bool has_memory_of(const at::Tensor& tensor) const;
  /// How far the version counter of an input moves.
  [[nodiscard]] std::uint32_t version_moves(std::size_t input) const { return versions_[input]; }
  [[nodiscard]] int runs() const { return runs_; }
  /// Bytes that each launch copies from inputs, and that its user copies of the first results.
  [[nodiscard]] std::int64_t copied_bytes(std::size_t results) const;

 private:
  /// Settings by which PyTorch's kernels are chosen when they are launched; the last ones are the order in which back
  /// ends of attention are asked.
  using Settings = std::array<std::int64_t, 17 + at::num_sdp_backends>;
  [[nodiscard]] static Settings settings();
  void record(const std::vector<at::Tensor>& given, const Run& run, PyObject* pool);

  c10::Stream stream_;
  Settings settings_;
  py::Ref graph_;                       ///< a `thunder._cuda_graphs.Graph`
  std::vector<at::Tensor> copies_;      ///< by input; undefined: it is used where it lies
  std::vector<const void*> addresses_;  ///< by input
  std::vector<at::Tensor> results_;     ///< in the memory of the graph
  std::vector<std::int64_t> returned_;
  std::vector<std::uint32_t> versions_;
  int runs_ = 0;
};

/// Looks where the inputs of calls lie, before they are recorded: what lies elsewhere each time must be copied.
class InputAddresses {
 public:
  /// Whether so many calls have come that it is time to record. What is written to must lie at one place: if it moves,
  /// the count starts again.
  [[nodiscard]] bool observe(const std::vector<at::Tensor>& inputs, const std::vector<bool>& written);
  [[nodiscard]] const std::vector<bool>& moves() const { return moves_; }
  void start_again() { calls_ = 0; }

 private:
  int calls_ = 0;
  std::vector<const void*> last_;
  std::vector<bool> moves_;
};

/// Whether the calling thread's stream is being recorded.
[[nodiscard]] bool is_capturing();
/// A tensor of the same sizes and strides.
[[nodiscard]] at::Tensor empty_like_exactly(const at::Tensor& tensor);
/// Copies as few launches as there are, without moving version counters.
void copy_uncounted(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from);
/// Why a program that may be recorded is not by default: as a graph it would be no shorter, or its results take more
/// than so many MiB. Empty: it is.
[[nodiscard]] std::string obstacle_by_default(const runtime::GraphFacts& facts, std::int64_t most_mib);
/// Throws where each call copies too many bytes for a graph that nobody asked for.
void require_few_copies(std::int64_t bytes);
/// Tries to do something; returns the message of what it throws, or an empty one.
[[nodiscard]] std::string obstacle_to(const std::function<void()>& action);

}  // namespace thunder::dispatch
