#include "executors/cuda_kernels/kernel_source.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "executors/cuda_kernels/addresses.h"
#include "executors/cuda_kernels/block_sums.h"
#include "executors/cuda_kernels/element_text.h"
#include "executors/cuda_kernels/lines.h"
#include "executors/cuda_kernels/mapping_choice.h"
#include "executors/cuda_kernels/numbers.h"
#include "executors/cuda_kernels/prelude.h"
#include "executors/cuda_kernels/registers.h"
#include "executors/cuda_kernels/row_passes.h"
#include "executors/cuda_kernels/simplified.h"

namespace thunder::executors::cuda {
namespace {

using fusion::ComputeType;
using fusion::Extent;
using fusion::KernelNode;
using fusion::SizedKernel;
using Kind = KernelNode::Kind;
using Access = Addresses::Access;

/// Words of a launch's argument.
constexpr std::size_t kMostWords = 4096 / 8;

std::string value(std::size_t node) { return join("v", node); }
std::string type_of(const KernelNode& node) { return std::string(type_text(node.type)); }
bool is_integer(const KernelNode& node) {
  return node.type == ComputeType::kInteger || node.type == ComputeType::kBool;
}

/// The structure of `Sum`, `Maximum`, … in the prelude.
std::string reduction_text(const KernelNode& node) {
  if (node.kind != Kind::kReduce || node.reduction == fusion::Reduction::kSum) return "Sum";
  return node.reduction == fusion::Reduction::kMax ? "Maximum" : "Minimum";
}

std::string identity_text(const KernelNode& node) {
  const std::string reduction = reduction_text(node);
  if (reduction == "Sum") return "0";
  const bool is_max = reduction == "Maximum";
  if (is_integer(node)) return is_max ? "-9223372036854775807ll - 1" : "9223372036854775807ll";
  return is_max ? "value_of(Bfloat16{0xff80})" : "value_of(Bfloat16{0x7f80})";
}

/// Whether there are elements that are stored, and all of them in 16-bit floats.
bool stores_narrow_elements(const SizedKernel& kernel) {
  bool stores = false;
  bool are_narrow = true;
  for (const KernelNode& node : kernel.nodes) {
    if (node.kind != Kind::kStore || kernel.nodes[node.operands[0]].extent != Extent::kElements) continue;
    const ir::Dtype dtype = kernel.accesses[node.index].dtype;
    stores = true;
    are_narrow = are_narrow && (dtype == ir::Dtype::kBfloat16 || dtype == ir::Dtype::kFloat16);
  }
  return stores && are_narrow;
}

/// Whether all results are 16-bit floats, sums over rows too.
bool gives_narrow_results(const SizedKernel& kernel) {
  const auto is_narrow = [](ir::Dtype dtype) { return dtype == ir::Dtype::kBfloat16 || dtype == ir::Dtype::kFloat16; };
  return std::ranges::all_of(kernel.nodes, [&](const KernelNode& node) {
    if (node.kind == Kind::kStore) return is_narrow(kernel.accesses[node.index].dtype);
    return !is_sum(node) || is_narrow(kernel.sums[node.index].dtype);
  });
}

/// Elements, or vectors, of a row too long for registers that a thread works on at the same time.
constexpr int kElementsAtOnce = 4;

class Emitter {
 public:
  Emitter(const SizedKernel& kernel, const LaunchFacts& facts)
      : kernel_(kernel),
        facts_(facts),
        mapping_(choose_mapping(kernel, facts)),
        passes_(kernel, mapping_.joins_sums()),
        addresses_(kernel, numbers_),
        sums_(kernel, mapping_, passes_, numbers_),
        kept_(kept_in_registers(kernel, passes_, mapping_, facts)),
        ahead_(loaded_ahead(kernel, mapping_, facts)),
        is_narrow_(stores_narrow_elements(kernel)),
        has_narrow_results_(gives_narrow_results(kernel)) {}

  KernelSource emit() {
    KernelSource source;
    std::string functions = fused_function();
    source.launches.push_back({facts_.name, mapping_.grid(), mapping_.thread_count()});
    if (!sums_.empty()) {
      SharedMemory shared;
      Lines body;
      const std::string name = facts_.name + "_finish";
      source.launches.push_back({name, sums_.finish(shared, body), BlockSums::kFinishThreads});
      Lines waiting;
      waiting.add("wait_for_previous();");
      waiting.append(body);
      functions += function(name, BlockSums::kFinishThreads, shared, waiting);
    }
    source.array_count = array_count();
    source.numbers = numbers_.values();
    source.scratch_bytes = sums_.scratch_bytes();
    source.overwrites_inputs = overwrites_inputs(kernel_, passes_, kept_);
    const bool is_short = has_short_offsets(kernel_, mapping_, source.scratch_bytes);
    const std::size_t arrays = std::max<std::size_t>(source.array_count, 1);
    const std::size_t numbers = std::max<std::size_t>(source.numbers.size(), 1);
    source.text =
        join("typedef ", is_short ? "int" : "long long", " Index;\n", kPrelude, "\nstruct Parameters {\n",
             "  void* arrays[", arrays, "];\n  void* scratch;\n", "  Integer numbers[", numbers, "];\n};\n\n");
    if (facts_.is_batched) {
      source.capacity = std::max<std::size_t>(kMostWords / (arrays + numbers + 2), 1);
      source.text += join("constexpr int capacity = ", source.capacity,
                          ";\nstruct Batch {\n  Integer ends[capacity];\n", "  Parameters each[capacity];\n};\n\n");
    }
    source.text += functions;
    return source;
  }

 private:
  [[nodiscard]] const KernelNode& operand(const KernelNode& node, std::size_t i = 0) const {
    return passes_.operand(node, i);
  }
  [[nodiscard]] std::string value_of(const KernelNode& node) const { return value(passes_.number(node)); }
  [[nodiscard]] const Access& access(const KernelNode& node) const { return kernel_.accesses[node.index]; }
  [[nodiscard]] std::string offset_of(const KernelNode& node) const { return join("offset", passes_.number(node)); }
  [[nodiscard]] std::string vector_of(const Access& access) const {
    return join("Vector<", storage_text(access.dtype), ", ", mapping_.vector, ">");
  }
  [[nodiscard]] bool loads_vectors(const KernelNode& node) const {
    return cuda::loads_vectors(node, kernel_, mapping_, facts_);
  }

  [[nodiscard]] std::size_t array_count() const {
    std::size_t count = 0;
    const auto reach = [&](std::uint32_t number) { count = std::max<std::size_t>(count, number + 1); };
    for (const Access& access : kernel_.accesses) {
      if (access.parts.empty()) reach(access.array);
      for (const Addresses::Part& part : access.parts) reach(part.array);
    }
    for (const auto& sum : kernel_.sums) {
      if (sum.array) reach(*sum.array);
      if (sum.variance) reach(*sum.variance);
    }
    return count;
  }

  // --- the function

  [[nodiscard]] std::string function(std::string_view name, int threads, const SharedMemory& shared, const Lines& body,
                                     int blocks_at_once = 0) {
    Lines lines;
    const std::string bounds = blocks_at_once == 0 ? "" : join(", ", blocks_at_once);
    lines.add("extern \"C\" __global__ void __launch_bounds__(", threads, bounds, ") ", name, "(const ",
              facts_.is_batched ? "__grid_constant__ Batch batch" : "Parameters p", ") {");
    lines.add("let_next_begin();");
    facts_.is_batched ? find_member(lines) : find_thread_block(lines);
    numbers_.declare(lines);
    shared.declare(lines);
    lines.append(body);
    lines.add("}");
    return lines.text();
  }

  static void find_thread_block(Lines& to) {
    to.add("const unsigned thread_block = blockIdx.x;");
    to.add("const unsigned thread_blocks = gridDim.x;");
  }

  /// Finds the member of a batch that the thread block belongs to, and its number there.
  static void find_member(Lines& to) {
    to.add("int member = 0;");
    to.add("#pragma unroll");
    to.add("for (int step = 256; step > 0; step /= 2) {");
    to.add("if (member + step < capacity && blockIdx.x >= batch.ends[member + step - 1]) member += step;");
    to.add("}");
    to.add("const Parameters& p = batch.each[member];");
    to.add("const Integer first_thread_block = member == 0 ? 0 : batch.ends[member - 1];");
    to.add("const unsigned thread_block = blockIdx.x - static_cast<unsigned>(first_thread_block);");
    to.add("const unsigned thread_blocks = static_cast<unsigned>(batch.ends[member] - first_thread_block);");
  }

  [[nodiscard]] std::string fused_function() {
    Lines body;
    const fusion::BasicDomain<std::int64_t>& domain = kernel_.domain;
    body.add("const Index columns = ", numbers_.index(domain.columns, "size"), ";");
    body.add("const Index row_count = ", numbers_.index(row_count(kernel_), "size"), ";");
    if (domain.run != 0) body.add("const Index run = ", numbers_.index(domain.run, "size"), ";");
    if (domain.interleaved) body.add("const Index height = ", numbers_.index(domain.outer.back(), "size"), ";");
    emit_share(body);
    emit_prefetch(body);
    body.add("wait_for_previous();");
    sums_.declare(body);
    for (const std::size_t kept : kept_) {
      const KernelNode& node = kernel_.nodes[kept];
      if (node.kind == Kind::kRandom) {
        body.add("RandomNumbers kept", kept, "[", mapping_.repeats, "][", mapping_.vector / kRandomTogether, "];");
      } else {
        body.add(vector_of(access(node)), " kept", kept, "[", mapping_.repeats, "];");
      }
    }
    // The compiler moves reads out of the loop, which threads without columns must not do.
    const bool skips_columns = !reduces_rows(kernel_);
    if (skips_columns) body.add("if (first < columns) {");
    ahead_.empty() ? emit_rows(body) : emit_rows_ahead(body);
    if (skips_columns) body.add("}");
    sums_.write(shared_, body);
    return function(facts_.name, mapping_.thread_count(), shared_, body, mapping_.blocks_at_once);
  }

  /// The loads of the first pass that differ from row to row, where another one is the same for all rows: those of the
  /// matrix that one row is multiplied with, which no kernel before is likely to have made.
  [[nodiscard]] std::vector<const KernelNode*> prefetched() const {
    std::vector<const KernelNode*> moving;
    bool has_shared = false;
    if (!reduces_rows(kernel_) || !mapping_.are_neighbours || mapping_.is_shifted || mapping_.repeats == 0) return {};
    for (const std::size_t number : passes_.elements_of(0)) {
      const KernelNode& node = kernel_.nodes[number];
      if (node.kind != Kind::kLoad || !loads_vectors(node)) continue;
      const bool moves =
          std::ranges::any_of(access(node).outer_strides, [](std::int64_t stride) { return stride != 0; });
      if (moves) moving.push_back(&node);
      has_shared = has_shared || !moves;
    }
    return has_shared ? moving : std::vector<const KernelNode*>();
  }

  /// Has the first rows of a thread block on their way while the kernel before ends.
  void emit_prefetch(Lines& to) {
    constexpr int kLine = 128;  // bytes of the cache
    const std::vector<const KernelNode*> loads = prefetched();
    if (loads.empty()) return;
    to.add("if (begin + y < end) {");
    to.add("const Index row = begin + y;");
    emit_indices(to);
    for (const KernelNode* node : loads) {
      to.add("const Index ", offset_of(*node), " = ", addresses_.row_offset(over_elements(*node)), ";");
    }
    to.add("#pragma unroll");
    to.add("for (int j = 0; j < ", mapping_.repeats, "; ++j) {");
    to.add("const Index first_of_vector = first + j * ", std::int64_t{mapping_.threads} * mapping_.vector, ";");
    for (const KernelNode* node : loads) {
      const int threads = std::max(kLine / (mapping_.vector * static_cast<int>(ir::size_of(access(*node).dtype))), 1);
      to.add("if (x % ", threads, " == 0", mapping_.is_full ? "" : " && first_of_vector < columns", ") prefetch(",
             array_text(access(*node).array, access(*node).dtype), " + ", offset_at(*node, "first_of_vector"), ");");
    }
    to.add("}");
    to.add("}");
  }

  void emit_rows(Lines& to) {
    if (mapping_.unrolled > 1) to.add("#pragma unroll ", mapping_.unrolled);
    to.add("for (Index base = begin; base < end; base += ", mapping_.rows, ") {");
    emit_row(to);
    to.add("}");
  }

  /// A thread loads what it needs of several rows before it computes the first of them.
  void emit_rows_ahead(Lines& to) {
    to.add("for (Index base_of_all = begin; base_of_all < end; base_of_all += ", mapping_.rows * mapping_.unrolled,
           ") {");
    for (const std::size_t number : ahead_) {
      to.add(vector_of(access(kernel_.nodes[number])), " ahead", number, "[", mapping_.unrolled, "];");
    }
    const auto begin_row = [&] {
      to.add("#pragma unroll");
      to.add("for (int u = 0; u < ", mapping_.unrolled, "; ++u) {");
      to.add("const Index base = base_of_all + u * ", mapping_.rows, ";");
    };
    begin_row();
    emit_place(to);
    to.add("const Index first_of_vector = first;");
    emit_is_inside(to);
    for (const std::size_t number : ahead_) {
      const KernelNode& node = kernel_.nodes[number];
      to.add("const Index ", offset_of(node), " = ", addresses_.row_offset(over_elements(node)), ";");
      to.add("ahead", number, "[u] = ", loaded_vector(node), ";");
    }
    to.add("}");
    begin_row();
    emit_row(to);
    to.add("}");
    to.add("}");
  }

  /// The rows and columns of a thread.
  void emit_share(Lines& to) {
    if (mapping_.are_neighbours) {
      to.add("const int x = threadIdx.x % ", mapping_.threads, ";");
      to.add("const int y = threadIdx.x / ", mapping_.threads, ";");
    } else {
      to.add("const int x = threadIdx.x / ", mapping_.rows, ";");
      to.add("const int y = threadIdx.x % ", mapping_.rows, ";");
    }
    const auto share = [&](std::int64_t number, const char* name) {
      return facts_.is_batched ? numbers_.any_index(number, name) : numbers_.index(number, name);
    };
    const bool may_have_tiles = !reduces_rows(kernel_) && !kernel_.domain.interleaved;
    const std::string tiles = may_have_tiles ? share(mapping_.tiles, "tiles") : "1";
    const std::string chunks = share(mapping_.chunks, "chunks");
    const std::string blocks = numbers_.index(mapping_.blocks, "blocks");
    const std::string chunk_rows = share(mapping_.chunk_rows, "chunk_rows");
    const int width = mapping_.threads * mapping_.vector * std::max(mapping_.repeats, 1);
    to.add("const Index tile = ", tiles == "1" ? "0" : "thread_block % " + tiles, ";");
    to.add("const Index part = ", tiles == "1" ? "thread_block" : "thread_block / " + tiles, ";");
    to.add("const Index first = ", tiles == "1" ? "" : join("tile * ", width, " + "), "x * ", mapping_.vector, ";");
    to.add("const bool is_first = tile == 0 && x == 0;");
    if (blocks == "1") {
      to.add("const Index begin = part * ", chunk_rows, ";");
      to.add("const Index end = min(begin + ", chunk_rows, ", row_count);");
      return;
    }
    to.add("const Index block_rows = row_count / ", blocks, ";");
    to.add("const Index begin = part / ", chunks, " * block_rows + part % ", chunks, " * ", chunk_rows, ";");
    to.add("const Index end = min(begin + ", chunk_rows, ", (part / ", chunks, " + 1) * block_rows);");
  }

  /// Threads behind the last row compute that row again, and store nothing.
  void emit_place(Lines& to) {
    to.add("const bool is_row = base + y < end;");
    to.add("const Index row = is_row ? base + y : end - 1;");
    emit_indices(to);
  }

  void emit_row(Lines& to) {
    emit_place(to);
    sums_.begin_row(to);
    for (const KernelNode& node : kernel_.nodes) {
      const bool loads = node.kind == Kind::kLoad && node.extent == Extent::kElements;
      const bool stores = node.kind == Kind::kStore && passes_.works_on_elements(node) && access(node).parts.empty();
      if (loads || stores)
        to.add("const Index ", offset_of(node), " = ", addresses_.row_offset(over_elements(node)), ";");
    }
    if (mapping_.is_shifted) to.add("const Index shift = (row * columns) % ", mapping_.vector, ";");
    for (std::size_t pass = 0; pass < passes_.count(); ++pass) {
      for (const KernelNode& node : kernel_.nodes) {
        if (passes_.of_value(node) == pass) emit_for_row(node, to);
      }
      emit_pass(pass, to);
    }
  }

  /// The access of a load or store of elements. What is the same for a row is stored as its elements.
  [[nodiscard]] Access over_elements(const KernelNode& node) const {
    Access made = access(node);
    made.extent = Extent::kElements;
    return made;
  }

  void emit_indices(Lines& to) {
    const std::vector<std::int64_t>& outer = kernel_.domain.outer;
    if (outer.empty()) return;
    to.add("Index rest = row;");
    for (std::size_t i = outer.size(); i-- > 1;) {
      const std::string size = numbers_.index(outer[i], "size");
      to.add("const Index i", i, " = rest % ", size, ";");
      to.add("rest /= ", size, ";");
    }
    to.add("const Index i0 = rest;");
  }

  // --- values of rows

  /// A node that is computed, stored or added once for each row.
  void emit_for_row(const KernelNode& node, Lines& to) {
    if (chooses_row(node)) choose_row(node, to);
    if (node.kind == Kind::kStore || is_sum(node)) {
      if (passes_.works_on_elements(node)) return;
      node.kind == Kind::kStore ? store_row(node, to) : sums_.add(node, to);
    } else if (node.kind == Kind::kGather) {
      emit_gathered_row(node, to);
    } else if (node.kind == Kind::kPick) {
      emit_pick(node, to);
    } else if (node.kind == Kind::kScatterAdd) {
      const std::string column = value(node.operands[1]);
      to.add("if (", column, " < 0 || ", column, " >= columns) trap();");
      to.add("const Index target", passes_.number(node), " = static_cast<Index>(", column, ");");
    } else if (node.extent != Extent::kElements && !is_reduction(node)) {
      to.add("const ", type_of(node), " ", value_of(node), " = ",
             node.kind == Kind::kLoad ? loaded(node, addresses_.row_offset(access(node))) : computed(node), ";");
    }
  }

  /// Reads an element, or a vector.
  [[nodiscard]] std::string read(std::uint32_t array, const std::string& address) const {
    const bool is_overwritten =
        std::ranges::any_of(kernel_.overwritten, [&](const auto& pair) { return pair.first == array; });
    return is_overwritten ? join("*(", address, ")") : join("read(", address, ")");
  }

  [[nodiscard]] std::string loaded(const KernelNode& node, const std::string& offset) const {
    return join("value_of(",
                read(access(node).array, join(array_text(access(node).array, access(node).dtype), " + ", offset)), ")");
  }

  void emit_gathered_row(const KernelNode& node, Lines& to) {
    const Access& table = access(node);
    const std::string chosen = value(node.operands[0]);
    const std::string rows = numbers_.index(table.table_rows, "table_rows");
    to.add("if (", chosen, " < 0 || ", chosen, " >= ", rows, ") trap();");
    const std::string offset =
        numbers_.term(join("static_cast<Index>(", chosen, ")"), table.table_stride, "table_stride");
    to.add("const Index ", offset_of(node), " = ", sum_of({offset}), ";");
  }

  [[nodiscard]] static bool chooses_row(const KernelNode& node) {
    return node.kind == Kind::kStore && node.operand_count > 1;
  }

  /// Declares where the chosen row of a table begins, and whether it is one.
  void choose_row(const KernelNode& node, Lines& to) {
    const Access& table = access(node);
    const std::size_t number = passes_.number(node);
    const std::string chosen = value(node.operands[1]);
    const std::string rows = numbers_.index(table.table_rows, "table_rows");
    to.add("const bool is_inside", number, " = ", chosen, " >= 0 && ", chosen, " < ", rows, ";");
    to.add("if (!is_inside", number, ") trap();");
    const std::string offset =
        numbers_.term(join("static_cast<Index>(", chosen, ")"), table.table_stride, "table_stride");
    to.add("const Index chosen", number, " = ", sum_of({offset}), ";");
  }

  /// The condition under which a thread that has a row stores a value.
  [[nodiscard]] std::string may_store(const KernelNode& node) const {
    return chooses_row(node) ? join("is_row && is_inside", passes_.number(node)) : "is_row";
  }
  [[nodiscard]] std::string chosen_row(const KernelNode& node) const {
    return chooses_row(node) ? join("chosen", passes_.number(node)) : "";
  }

  void emit_pick(const KernelNode& node, Lines& to) {
    to.add(type_of(node), " ", value_of(node), ";");
    to.add("{");
    to.add("const Index column = static_cast<Index>(", value(node.operands[1]), ");");
    to.add("if (column < 0 || column >= columns) trap();");
    std::set<std::size_t> defined;
    Lines no_vectors;
    emit_element(node.operands[0], defined, no_vectors, to, /*is_single=*/true);
    to.add(value_of(node), " = ", value(node.operands[0]), ";");
    to.add("}");
  }

  void store_row(const KernelNode& node, Lines& to) {
    const Access& target = access(node);
    std::string condition = may_store(node) + " && is_first";
    std::string offset;
    std::uint32_t array = target.array;
    to.add("{");
    if (target.parts.empty()) {
      offset = sum_of({addresses_.row_offset(target), chosen_row(node)});
    } else {
      to.add("const Index column = 0;");
      const auto [inside, place] = addresses_.place_in(target.parts[0], target.run);
      if (!inside.empty()) condition += " && " + inside;
      offset = place;
      array = target.parts[0].array;
    }
    to.add("if (", condition, ") ", array_text(array, target.dtype), "[", offset, "] = ", stored(node), ";");
    to.add("}");
  }

  [[nodiscard]] std::string stored(const KernelNode& node) const {
    return join("Stored<", storage_text(access(node).dtype), ">::of(", value(node.operands[0]), ")");
  }

  /// A node that its operands alone decide.
  [[nodiscard]] std::string computed(const KernelNode& node) {
    switch (node.kind) {
      case Kind::kConstant:
        if (node.type == ComputeType::kBool) return node.number != 0 ? "true" : "false";
        if (node.type == ComputeType::kInteger) return join("Integer(", node.integer, "ll)");
        return numbers_.real(node.number, node.type);
      case Kind::kElement:
        return element(node);
      case Kind::kRound:
        return rounded_text(value(node.operands[0]), node.type, node.dtype);
      case Kind::kConvert:
        if (node.type == ComputeType::kBool) return join(value(node.operands[0]), " != 0");
        return join("static_cast<", type_of(node), ">(", value(node.operands[0]), ")");
      default:
        return value(node.operands[0]);  // expanded
    }
  }

  [[nodiscard]] std::string element(const KernelNode& node) const {
    std::array<OperandText, 3> operands;
    ComputeType type = operand(node, node.operand_count - 1).type;
    for (std::size_t i = 0; i < node.operand_count; ++i) {
      operands[i] = {value(node.operands[i]), operand(node, i).type};
      const bool is_condition = node.op == operators::ElementOp::kWhere && i == 0;
      if (!is_condition && !is_integer(operand(node, i))) type = operand(node, i).type;
    }
    const bool is_narrow = node.op == operators::ElementOp::kExp ? has_narrow_results_ : is_narrow_;
    return operation_text(node.op, type, operands, is_narrow);
  }

  // --- values of elements

  /// Computes an element, and what it needs: vectors `before` the loop over their elements, the rest `inside`, where
  /// the element is at `column`. `is_single`: without vectors.
  void emit_element(std::size_t number, std::set<std::size_t>& defined, Lines& before, Lines& inside,
                    bool is_single = false) {
    const KernelNode& node = kernel_.nodes[number];
    if (node.extent != Extent::kElements || !defined.insert(number).second) return;
    for (std::size_t i = 0; i < node.operand_count; ++i) {
      emit_element(node.operands[i], defined, before, inside, is_single);
    }
    const bool is_assembled_of_vectors = node.kind == Kind::kAssemble && !is_single && has_vectors_of_parts(node);
    if (node.kind == Kind::kAssemble && !is_assembled_of_vectors) return emit_assembled(node, inside);
    std::string text;
    if (is_assembled_of_vectors) {
      emit_assembled_vector(node, before);
      text = join("value_of(vector", number, ".at[e])");
    } else if (node.kind == Kind::kRandom) {
      text = random_text(node, before, is_single);
    } else if (node.kind == Kind::kLoad || node.kind == Kind::kGather) {
      const bool is_of_vector = !is_single && loads_vectors(node);
      if (is_of_vector) emit_vector(node, before);
      text = is_of_vector ? join("value_of(vector", number, ".at[e])") : loaded(node, offset_at(node, "column"));
    } else if (node.kind == Kind::kScatterAdd) {
      text = join("column == target", number, " ? add(", value(node.operands[0]), ", static_cast<", type_of(node), ">(",
                  value(node.operands[2]), ")) : ", value(node.operands[0]));
    } else {
      text = computed(node);
    }
    inside.add("const ", type_of(node), " ", value(number), " = ", text, ";");
  }

  [[nodiscard]] std::string offset_at(const KernelNode& node, std::string_view column) {
    return sum_of({offset_of(node), addresses_.column_offset(over_elements(node), column)});
  }

  /// Four neighbours share what is computed for one.
  [[nodiscard]] std::string random_text(const KernelNode& node, Lines& before, bool is_single) {
    Access dense;
    dense.is_dense = true;
    const std::string state = array_text(access(node).array, access(node).dtype);
    const auto index = [&](std::string_view column) {
      return sum_of({addresses_.row_offset(dense), addresses_.column_offset(dense, column)});
    };
    if (is_single || !draws_together(node, kernel_, mapping_)) {
      return join("random_at(", state, ", static_cast<Index>(", index("column"), "))");
    }
    const std::size_t number = passes_.number(node);
    const bool is_kept = kept_.contains(number);
    const std::string name = is_kept ? join("kept", number, "[j]") : join("random", number);
    if (!is_kept) before.add("RandomNumbers ", name, "[", mapping_.vector / kRandomTogether, "];");
    for (int i = 0; i < mapping_.vector / kRandomTogether && !loaded_.contains(number); ++i) {
      before.add(name, "[", i, "] = random_numbers_at(", state, ", static_cast<Index>(",
                 index(join("(first_of_vector + ", i * kRandomTogether, ")")), "));");
    }
    if (is_kept) loaded_here_.insert(number);
    return join(name, "[e / ", kRandomTogether, "].at[e % ", kRandomTogether, "]");
  }

  [[nodiscard]] std::string loaded_vector(const KernelNode& node) {
    const std::string array = array_text(access(node).array, access(node).dtype);
    const std::string place = join(array, " + ", offset_at(node, "first_of_vector"));
    const std::string vector =
        read(access(node).array, join("reinterpret_cast<const ", vector_of(access(node)), "*>(", place, ")"));
    if (!mapping_.has_partial_vectors()) return vector;
    return join("is_inside ? ", vector, " : read_part<", mapping_.vector, ">(", array, " + ", offset_of(node),
                ", first_of_vector, columns)");
  }

  void emit_vector(const KernelNode& node, Lines& before) {
    const std::size_t number = passes_.number(node);
    const std::string vector = vector_of(access(node));
    if (ahead_.contains(number)) {
      before.add("const ", vector, " vector", number, " = ahead", number, "[u];");
      return;
    }
    if (grouped_.contains(number)) {
      before.add("const ", vector, " vector", number, " = group", number, "[j];");
      return;
    }
    const bool is_kept = kept_.contains(number);
    if (is_kept && loaded_.contains(number)) {
      before.add("const ", vector, " vector", number, " = kept", number, "[j];");
      return;
    }
    before.add("const ", vector, " vector", number, " = ", loaded_vector(node), ";");
    if (!is_kept) return;
    before.add("kept", number, "[j] = vector", number, ";");
    loaded_here_.insert(number);
  }

  /// Later parts hide earlier ones.
  void emit_assembled(const KernelNode& node, Lines& inside) {
    const Access& assembled = access(node);
    const std::string fill = node.operand_count == 0 ? "" : " = " + value(node.operands[0]);
    inside.add(type_of(node), " ", value_of(node), fill, ";");
    std::string otherwise;
    for (auto part = assembled.parts.rbegin(); part != assembled.parts.rend(); ++part) {
      const auto [condition, offset] = addresses_.place_in(*part, assembled.run);
      inside.add(otherwise, "if (", condition.empty() ? "true" : condition, ") {");
      inside.add(value_of(node), " = value_of(",
                 read(part->array, join(array_text(part->array, assembled.dtype), " + ", offset)), ");");
      inside.add("}");
      otherwise = "else ";
    }
  }

  [[nodiscard]] bool has_vectors_of_parts(const KernelNode& node) const {
    return has_vectorized_parts(access(node), kernel_, mapping_.vector, facts_);
  }

  /// Each vector comes from one part.
  void emit_assembled_vector(const KernelNode& node, Lines& before) {
    const Access& assembled = access(node);
    const std::string vector = vector_of(assembled);
    const std::string name = join("vector", passes_.number(node));
    before.add(vector, " ", name, ";");
    std::string otherwise;
    for (auto part = assembled.parts.rbegin(); part != assembled.parts.rend(); ++part) {
      const auto [condition, offset] = addresses_.place_in(*part, assembled.run, "first_of_vector");
      before.add(otherwise, "if (", condition.empty() ? "true" : condition, ") {");
      const std::string place = join(array_text(part->array, assembled.dtype), " + ", offset);
      before.add(name, " = ", read(part->array, join("reinterpret_cast<const ", vector, "*>(", place, ")")), ";");
      before.add("}");
      otherwise = "else ";
    }
    if (node.operand_count == 0) return;
    before.add("else {");
    before.add("#pragma unroll");
    before.add("for (int e = 0; e < ", mapping_.vector, "; ++e) ", name, ".at[e] = ", stored(node), ";");
    before.add("}");
  }

  // --- a pass

  void emit_pass(std::size_t pass, Lines& to) {
    const std::vector<const KernelNode*> work = passes_.work_of(pass);
    if (work.empty()) return;
    Lines before;
    Lines inside;
    Lines after;
    std::set<std::size_t> defined;
    loaded_here_.clear();
    group_loads(pass);
    for (const KernelNode* node : work) {
      if (passes_.joined_maximum(*node) != nullptr) {
        add_exponentials(*node, before, inside, after, to);
        continue;
      }
      for (std::size_t i = 0; i < node->operand_count; ++i) emit_element(node->operands[i], defined, before, inside);
      if (passes_.joined_sum(*node) != nullptr) {
        to.add(type_of(*node), " ", value_of(*node), " = ", identity_text(*node), ";");
      } else if (is_reduction(*node)) {
        to.add(type_of(*node), " ", value_of(*node), " = ", identity_text(*node), ";");
        inside.add(value_of(*node), " = ", reduction_text(*node), "::of(", value_of(*node), ", ", reduced(*node), ");");
      } else if (node->kind == Kind::kStore) {
        store_element(*node, before, inside, after);
      } else {
        sums_.add(*node, inside);
      }
    }
    emit_columns(before, inside, after, to);
    loaded_.insert(loaded_here_.begin(), loaded_here_.end());
    for (const KernelNode* node : work) {
      if (is_reduction(*node)) reduce_over_threads(*node, to);
    }
  }

  /// Chooses the vectors that are loaded ahead in a pass over a row that is too long for registers.
  void group_loads(std::size_t pass) {
    grouped_.clear();
    for (const std::size_t node : passes_.elements_of(pass)) {
      if (loads_vectors(kernel_.nodes[node])) grouped_.insert(node);
    }
    if (vectors_at_once(mapping_, grouped_.size()) == 0) grouped_.clear();
  }

  /// A vector's share of the sum of exponentials, and of the maximum that is subtracted in them.
  void add_exponentials(const KernelNode& sum, Lines& before, Lines& inside, Lines& after, Lines& to) const {
    const KernelNode& largest = *passes_.joined_maximum(sum);
    const std::string given = join("given", passes_.number(sum));
    to.add(type_of(sum), " ", value_of(sum), " = 0;");
    before.add(type_of(sum), " ", given, "[", mapping_.vector, "];");
    if (mapping_.has_partial_vectors()) {
      before.add("#pragma unroll");
      before.add("for (int e = 0; e < ", mapping_.vector, "; ++e) ", given, "[e] = ", identity_text(largest), ";");
    }
    inside.add(given, mapping_.vector == 1 ? "[0] = " : "[e] = ", reduced(largest), ";");
    after.add("take_exponentials(", value_of(largest), ", ", value_of(sum), ", ", given, ");");
  }

  /// The loop over a thread's columns of a row.
  void emit_columns(const Lines& before, const Lines& inside, const Lines& after, Lines& to) {
    const std::int64_t step = std::int64_t{mapping_.threads} * mapping_.vector;
    const std::string begin = mapping_.is_shifted ? "first - shift" : "first";
    if (!grouped_.empty()) {
      emit_grouped_loads(begin, step, to);
    } else if (mapping_.repeats == 0) {
      to.add("#pragma unroll ", kElementsAtOnce);  // so that several reads are under way
      to.add("for (Index first_of_vector = ", begin, "; first_of_vector < columns; first_of_vector += ", step, ") {");
    } else {
      to.add("#pragma unroll");
      to.add("for (int j = 0; j < ", mapping_.repeats, "; ++j) {");
      to.add("const Index first_of_vector = ", begin, " + j * ", step, ";");
      // Without a condition, all loads of a thread are under way before the first of them is used.
      if (!mapping_.is_full) to.add("if (first_of_vector < columns) {");
    }
    emit_is_inside(to);
    to.append(before);
    if (mapping_.vector == 1) {
      to.add("const Index column = first_of_vector;");
      to.append(inside);
    } else if (mapping_.has_partial_vectors()) {
      to.add("if (is_inside) {");
      emit_elements(inside, "", to);
      to.add("} else {");
      emit_elements(inside, "if (column >= 0 && column < columns) {", to);
      to.add("}");
    } else {
      emit_elements(inside, "", to);
    }
    to.append(after);
    to.add("}");
    if (mapping_.repeats != 0 && !mapping_.is_full) to.add("}");
    if (!grouped_.empty()) {
      to.add("}");
      to.add("}");
    }
  }

  void emit_is_inside(Lines& to) const {
    if (!mapping_.has_partial_vectors()) return;
    const std::string begins = mapping_.is_shifted ? "first_of_vector >= 0 && " : "";
    to.add("const bool is_inside = ", begins, "first_of_vector + ", mapping_.vector, " <= columns;");
  }

  /// Begins the loops over groups of vectors, and over the vectors of a group, which are loaded before the second one.
  void emit_grouped_loads(const std::string& begin, std::int64_t step, Lines& to) {
    const std::size_t count = vectors_at_once(mapping_, grouped_.size());
    to.add("for (Index group = ", begin, "; group < columns; group += ", step * static_cast<std::int64_t>(count),
           ") {");
    for (const std::size_t number : grouped_) {
      to.add(vector_of(access(kernel_.nodes[number])), " group", number, "[", count, "];");
    }
    const auto begin_vector = [&] {
      to.add("#pragma unroll");
      to.add("for (int j = 0; j < ", count, "; ++j) {");
      to.add("const Index first_of_vector = group + j * ", step, ";");
      to.add("if (first_of_vector < columns) {");
    };
    begin_vector();
    emit_is_inside(to);
    for (const std::size_t number : grouped_) {
      to.add("group", number, "[j] = ", loaded_vector(kernel_.nodes[number]), ";");
    }
    to.add("}");
    to.add("}");
    begin_vector();
  }

  /// The loop over the elements of a vector, all of them or those that a condition holds for.
  void emit_elements(const Lines& inside, std::string_view condition, Lines& to) const {
    to.add("#pragma unroll");
    to.add("for (int e = 0; e < ", mapping_.vector, "; ++e) {");
    to.add("const Index column = first_of_vector + e;");
    if (!condition.empty()) to.add(condition);
    to.append(inside);
    if (!condition.empty()) to.add("}");
    to.add("}");
  }

  [[nodiscard]] static std::string reduced(const KernelNode& node) {
    if (node.kind != Kind::kVariance) return join(type_of(node), "(", value(node.operands[0]), ")");
    const std::string distance = join("(", value(node.operands[1]), " - ", value(node.operands[0]), ")");
    return join(distance, " * ", distance);
  }

  void reduce_over_threads(const KernelNode& node, Lines& to) {
    const std::string made = value_of(node);
    const KernelNode* joined = passes_.joined_sum(node);
    const std::string own = join("own", passes_.number(node));
    if (joined != nullptr) to.add("const ", type_of(node), " ", own, " = ", made, ";");
    if (mapping_.threads > 1) {
      const int warps = mapping_.thread_count() / 32 + 1;
      shared_.need(std::int64_t{8} * (mapping_.are_neighbours ? warps : mapping_.thread_count()));
      to.add(made, " = ", mapping_.are_neighbours ? "reduce_neighbours" : "reduce_apart", "<", reduction_text(node),
             ", ", mapping_.threads, ", ", mapping_.rows, ">(", made, ", reinterpret_cast<", type_of(node),
             "*>(shared));");
    }
    if (joined != nullptr) to.add(value_of(*joined), " *= narrow_exp(", own, " - finite_shift(", made, "));");
    // Where the largest element is infinite, exponentials of differences are NaN.
    const KernelNode* largest = passes_.joined_maximum(node);
    if (largest != nullptr) to.add(made, " += ", value_of(*largest), " - ", value_of(*largest), ";");
    const std::string columns = join("static_cast<", type_of(node), ">(columns)");
    if (node.kind == Kind::kMean) to.add(made, " /= ", columns, ";");
    if (node.kind == Kind::kVariance) to.add(made, " /= ", columns, " - ", numbers_.real(node.number, node.type), ";");
  }

  void store_element(const KernelNode& node, Lines& before, Lines& inside, Lines& after) {
    const Access target = over_elements(node);
    if (!target.parts.empty()) {
      if (has_vectors_of_parts(node)) return store_vector_in_part(node, before, inside, after);
      const auto [condition, offset] = addresses_.place_in(target.parts[0], target.run);
      inside.add("if (is_row", condition.empty() ? "" : " && " + condition, ") {");
      inside.add(array_text(target.parts[0].array, target.dtype), "[", offset, "] = ", stored(node), ";");
      inside.add("}");
      return;
    }
    const auto place = [&](std::string_view column) {
      return join(array_text(target.array, target.dtype), "[", sum_of({offset_at(node, column), chosen_row(node)}),
                  "]");
    };
    if (!is_vectorized(target, kernel_, mapping_, facts_)) {
      inside.add("if (", may_store(node), ") ", place("column"), " = ", stored(node), ";");
      return;
    }
    const std::string vector = vector_of(target);
    const std::string made = join("stored", passes_.number(node));
    before.add(vector, " ", made, ";");
    inside.add(made, ".at[e] = ", stored(node), ";");
    const std::string condition = may_store(node) + (mapping_.has_partial_vectors() ? " && is_inside" : "");
    after.add("if (", condition, ") *reinterpret_cast<", vector, "*>(&", place("first_of_vector"), ") = ", made, ";");
    if (!mapping_.has_partial_vectors()) return;
    after.add("if (", may_store(node), " && !is_inside) write_part(", array_text(target.array, target.dtype), " + ",
              sum_of({offset_of(node), chosen_row(node)}), ", ", made, ", first_of_vector, columns);");
  }

  void store_vector_in_part(const KernelNode& node, Lines& before, Lines& inside, Lines& after) {
    const Access& target = access(node);
    const std::string vector = vector_of(target);
    const std::string made = join("stored", passes_.number(node));
    const auto [condition, offset] = addresses_.place_in(target.parts[0], target.run, "first_of_vector");
    before.add(vector, " ", made, ";");
    inside.add(made, ".at[e] = ", stored(node), ";");
    after.add("if (is_row", condition.empty() ? "" : " && " + condition, ") *reinterpret_cast<", vector, "*>(",
              array_text(target.parts[0].array, target.dtype), " + ", offset, ") = ", made, ";");
  }

  const SizedKernel& kernel_;
  const LaunchFacts& facts_;
  const Mapping mapping_;
  Numbers numbers_;
  RowPasses passes_;
  Addresses addresses_;
  BlockSums sums_;
  SharedMemory shared_;
  std::set<std::size_t> kept_;     ///< loads that stay in registers
  std::set<std::size_t> ahead_;    ///< loads that begin before rows are computed
  bool is_narrow_;                 ///< elements are rounded to 16 bits in the end
  bool has_narrow_results_;        ///< all results are
  std::set<std::size_t> grouped_;  ///< loads of several vectors of a row that begin before these are computed
  std::set<std::size_t> loaded_;   ///< those of them that an earlier pass has loaded
  std::set<std::size_t> loaded_here_;
};

}  // namespace

std::optional<KernelSource> emit_source(const SizedKernel& kernel, const LaunchFacts& facts) {
  const auto sums_columns = [](const KernelNode& node) { return is_sum(node) && node.kind != Kind::kTotal; };
  if (row_count(kernel) * kernel.domain.columns == 0) return std::nullopt;
  if (kernel.domain.interleaved && std::ranges::any_of(kernel.nodes, sums_columns)) return std::nullopt;
  const SizedKernel simple = simplified(kernel);
  return Emitter(simple, facts).emit();
}

}  // namespace thunder::executors::cuda
