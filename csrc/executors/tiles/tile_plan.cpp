// How the values of a TileBuilder become a program: phases, places in memory, registers, instructions.
#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "executors/tiles/tile_builder.h"
#include "executors/tiles/tile_shape.h"

namespace thunder::executors::cpu {
namespace {

/// Outputs of more bytes leave the caches alone: nobody finds them there. Inputs of more are fetched ahead.
constexpr std::int64_t kStreamBytes = std::int64_t{16} << 20;
/// Where rows lie apart, they begin and end within a cache line, which memory then takes in parts: not for short ones.
constexpr std::int64_t kStreamRowBytes = 8192;
constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Access TileBuilder::dense_access(std::uint32_t array, Storage storage) const {
  Access access{array, storage, std::vector<std::int64_t>(domain_.outer.size()), 1, Extent::kTile, domain_.run};
  std::int64_t step = domain_.run != 0 ? domain_.run : domain_.columns;
  std::size_t behind = domain_.outer.size();
  if (domain_.interleaved) {
    access.outer_strides[--behind] = 1;
    access.inner_stride = domain_.outer[behind];
    step *= access.inner_stride;
  }
  for (std::size_t i = behind; i-- > 0;) {
    access.outer_strides[i] = step;
    step *= domain_.outer[i];
  }
  if (domain_.run != 0) access.run_stride = step;
  return access;
}

bool TileBuilder::is_dense(const Access& access) const {
  Access dense = dense_access(access.array, access.storage);
  for (std::size_t i = 0; i < domain_.outer.size() && i < access.outer_strides.size(); ++i) {
    if (domain_.outer[i] == 1) dense.outer_strides[i] = access.outer_strides[i];
  }
  return access == dense;
}

std::optional<std::int64_t> TileBuilder::block_stride(const Access& access) const {
  const std::vector<std::int64_t>& strides = access.outer_strides;
  if (domain_.interleaved) return std::nullopt;
  const bool has_blocks = domain_.blocks != 1 && strides.size() == 2 && domain_.outer[0] == domain_.blocks;
  const auto first = strides.begin() + (has_blocks ? 1 : 0);
  if (std::any_of(first, strides.end(), [](std::int64_t stride) { return stride != 0; })) return std::nullopt;
  return has_blocks ? strides[0] : 0;
}

/// One build: what the phases are made of, then registers.
struct TileBuilder::Plan {
  explicit Plan(TileBuilder& owner) : builder(owner), nodes(owner.nodes_) {}

  TileBuilder& builder;
  std::vector<Node>& nodes;
  Readers readers;
  TileProgram program;
  std::int32_t phase_count = 1;
  std::vector<std::uint16_t> register_of;  ///< by node
  std::vector<std::int32_t> output_array;  ///< by node: the array in whose memory it is computed; -1: none
  std::vector<bool> lives_on;              ///< by node: read in a later phase than its own
  /// By node: where a phase takes the tile from without an instruction; nullopt: it is loaded, or computed.
  std::vector<std::optional<Binding>> bindings;
  struct FreeSlot {
    std::int64_t offset;
    std::int64_t size;
  };
  std::vector<FreeSlot> free_slots;

  TileProgram run() {
    find_readers();
    sink();
    builder.join_pairs(readers);
    find_readers();
    for (const Node& node : nodes) phase_count = std::max(phase_count, node.phase + 1);
    set_shape(builder.domain_, builder.column_sums_, program);
    choose_outputs();
    find_survivors();
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      bindings.push_back(gives_tile(nodes[i]) ? binding_of(i) : std::nullopt);
    }
    give_lasting_registers();
    program.phases.resize(static_cast<std::size_t>(phase_count));
    emit_rows(-1, program.before);
    for (std::int32_t phase = 0; phase < phase_count; ++phase) emit_phase(phase);
    program.scratch_bytes = aligned(program.scratch_bytes);
    program.overwrites_inputs = !builder.overwritten_.empty() && reads_before_it_writes();
    program.accesses = std::move(builder.accesses_);
    program.column_sums = std::move(builder.column_sums_);
    program.totals = std::move(builder.totals_);
    return std::move(program);
  }

  static bool is_load(const Node& node) {
    return (node.kind == Kind::kLoad || node.kind == Kind::kAssemble) && !node.is_constant;
  }
  static bool gives_tile(const Node& node) {
    return !node.is_constant && node.extent == Extent::kTile &&
           (node.kind == Kind::kElement || node.kind == Kind::kScatterAdd || node.kind == Kind::kGather ||
            is_load(node));
  }
  static bool is_variance(const Node& node) { return node.kind == Kind::kMoments && node.pair != kNone; }

  void find_readers() {
    readers.assign(nodes.size(), {});
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      for (const std::uint32_t argument : nodes[i].arguments) {
        if (argument != kNone) readers[argument].push_back(i);
      }
    }
  }

  /// Computes what only later phases read in the first of these, where that keeps no more rows alive.
  void sink() {
    for (std::uint32_t i = static_cast<std::uint32_t>(nodes.size()); i-- > 0;) {
      Node& node = nodes[i];
      if (!gives_tile(node) || is_load(node) || readers[i].empty()) continue;
      std::int32_t first = nodes[readers[i].front()].phase;
      for (const std::uint32_t reader : readers[i]) first = std::min(first, nodes[reader].phase);
      if (first <= node.phase) continue;
      const bool keeps_nothing = std::ranges::all_of(node.arguments, [&](std::uint32_t argument) {
        if (argument == kNone || !gives_tile(nodes[argument]) || is_load(nodes[argument])) return true;
        return std::ranges::any_of(readers[argument],
                                   [&](std::uint32_t reader) { return nodes[reader].phase >= first; });
      });
      if (keeps_nothing) node.phase = first;
    }
  }

  /// Whether a tile of an array that lies as the domain does is one piece.
  [[nodiscard]] bool lies_as_tiles() const {
    return !program.interleaved && (program.run == 0 || program.stays_in_runs);
  }

  /// Rows lie side by side, and nobody but a store, or elementwise work, looks at the value.
  [[nodiscard]] bool is_across(const Node& node, const std::vector<std::uint32_t>& read_by) const {
    const bool is_result = node.kind == Kind::kElement && read_by.size() == 1;
    const bool is_read = is_load(node) && std::ranges::all_of(read_by, [&](std::uint32_t reader) {
                           const Kind kind = nodes[reader].kind;
                           return kind == Kind::kElement || kind == Kind::kReduce || kind == Kind::kMoments;
                         });
    return program.interleaved && (is_result || is_read);
  }

  /// A value that is stored once, as it is, is computed where it is stored.
  void choose_outputs() {
    output_array.assign(nodes.size(), -1);
    for (const Node& node : nodes) {
      if (node.kind != Kind::kStore || node.is_constant || node.extent != Extent::kTile) continue;
      const Access& access = builder.accesses_[node.index];
      const Node& stored = nodes[node.arguments[0]];
      const bool as_it_is = compute_type_of(access.storage) == stored.compute_type &&
                            size_of(access.storage) == size_of(stored.compute_type) && builder.is_dense(access);
      const bool streams = program.rows * program.columns * size_of(access.storage) >= kStreamBytes;
      const bool is_computed = gives_tile(stored) && !is_load(stored);
      const bool is_read = std::ranges::any_of(builder.overwritten_, [&](const Overwritten& pair) {
        return pair.output == access.array;  // by what comes later in the tile
      });
      const bool has_place = lies_as_tiles() || is_across(stored, readers[node.arguments[0]]);
      if (as_it_is && has_place && !streams && is_computed && !is_read && output_array[node.arguments[0]] < 0) {
        output_array[node.arguments[0]] = static_cast<std::int32_t>(access.array);
      }
    }
  }

  /// Whether a store reads an input, as it lies in memory, that one before it may have written over.
  [[nodiscard]] bool stores_what_is_overwritten() const {
    std::vector<std::uint32_t> overwritten;
    for (const Node& node : nodes) {
      if (node.kind != Kind::kStore) continue;
      const Node& stored = nodes[node.arguments[0]];
      if (is_load(stored) &&
          std::ranges::find(overwritten, builder.accesses_[stored.index].array) != overwritten.end()) {
        return true;
      }
      for (const Overwritten& pair : builder.overwritten_) {
        if (pair.output == builder.accesses_[node.index].array) overwritten.push_back(pair.input);
      }
    }
    return false;
  }

  /// One phase, which stores a tile when all is computed, and reads of what it overwrites no other tile's elements.
  [[nodiscard]] bool reads_before_it_writes() const {
    const auto may_fail = [](const Node& node) {
      return node.kind == Kind::kPick || node.kind == Kind::kGather || node.kind == Kind::kScatterAdd;
    };
    const auto is_store = [](const Node& node) { return node.kind == Kind::kStore; };
    const bool stores_last = std::ranges::is_partitioned(nodes, std::not_fn(is_store));
    if (phase_count != 1 || !stores_last || std::ranges::any_of(nodes, may_fail) || stores_what_is_overwritten()) {
      return false;
    }
    const auto is_overwritten = [&](std::uint32_t array) {
      return std::ranges::any_of(builder.overwritten_, [&](const Overwritten& pair) { return pair.input == array; });
    };
    return std::ranges::all_of(nodes, [&](const Node& node) {
      if (!is_load(node)) return true;
      const Access& access = builder.accesses_[node.index];
      if (node.kind == Kind::kAssemble) {
        return std::ranges::none_of(access.parts, [&](const Part& part) { return is_overwritten(part.array); });
      }
      return builder.is_dense(access) || !is_overwritten(access.array);
    });
  }

  [[nodiscard]] std::optional<Binding> binding_of(std::uint32_t i) const {
    const Node& node = nodes[i];
    Binding binding;
    binding.element_size = size_of(node.compute_type);
    const Binding::Kind in_place = program.interleaved ? Binding::Kind::kAcross : Binding::Kind::kDense;
    if (output_array[i] >= 0) {
      binding.kind = in_place;
      binding.array = static_cast<std::uint32_t>(output_array[i]);
      return binding;
    }
    if (is_load(node)) {
      const Access& access = builder.accesses_[node.index];
      if (node.kind == Kind::kAssemble || size_of(access.storage) != size_of(node.compute_type)) return std::nullopt;
      binding.array = access.array;
      if (builder.is_dense(access) && (lies_as_tiles() || is_across(node, readers[i]))) {
        binding.kind = in_place;
        return binding;
      }
      if (access.inner_stride != 1 || access.run != 0) return std::nullopt;
      const bool by_rows = std::ranges::all_of(readers[i], [&](std::uint32_t reader) {
        return nodes[reader].kind == Kind::kElement && nodes[reader].extent == Extent::kTile;
      });
      const auto block_stride = builder.block_stride(access);
      if (!block_stride || (!by_rows && program.tile_rows != 1)) return std::nullopt;
      binding.kind = Binding::Kind::kColumns;
      binding.block_stride = *block_stride;
      return binding;
    }
    if (lives_on[i]) return binding;
    return std::nullopt;
  }

  void find_survivors() {
    lives_on.assign(nodes.size(), false);
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      if (!gives_tile(nodes[i]) || is_load(nodes[i]) || output_array[i] >= 0) continue;
      for (const std::uint32_t reader : readers[i]) lives_on[i] = lives_on[i] || nodes[reader].phase > nodes[i].phase;
    }
  }

  std::uint16_t add_register(ComputeType compute_type, Extent extent, std::int64_t offset) {
    program.registers.push_back({compute_type, extent, offset});
    return static_cast<std::uint16_t>(program.registers.size() - 1);
  }

  std::int64_t take_scratch(std::int64_t bytes) {
    const std::int64_t offset = program.scratch_bytes;
    program.scratch_bytes += aligned(bytes);
    return offset;
  }

  /// Constants, rows, and what more than one phase sees keep their registers.
  void give_lasting_registers() {
    register_of.assign(nodes.size(), 0xffff);
    add_register(ComputeType::kFloat, Extent::kConstant, 0);  // stands for an argument that is not there
    program.constants.push_back(0);
    const std::int64_t tile = program.tile_rows * program.tile_columns;
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      if (node.is_constant) {
        register_of[i] = add_register(node.compute_type, Extent::kConstant, put_constant(node));
      } else if (node.kind == Kind::kStore || node.kind == Kind::kColumnSum || node.kind == Kind::kTotal) {
        continue;
      } else if (node.extent == Extent::kRow) {
        register_of[i] = add_register(node.compute_type, Extent::kRow, take_scratch(8 * program.tile_rows));
      } else if (bindings[i]) {
        const bool in_scratch = bindings[i]->kind == Binding::Kind::kWholeRow;
        const std::int64_t bytes = std::max(tile, program.tile_rows * program.columns) * size_of(node.compute_type);
        register_of[i] = add_register(node.compute_type, Extent::kTile, in_scratch ? take_scratch(bytes) : 0);
      }
    }
  }

  std::int64_t put_constant(const Node& node) {
    program.constants.push_back(slot_of(node));
    return 8 * static_cast<std::int64_t>(program.constants.size() - 1);
  }

  [[nodiscard]] bool lies_across(std::uint32_t i) const {
    return bindings[i] && bindings[i]->kind == Binding::Kind::kAcross;
  }

  Instruction instruction_of(std::uint32_t i) {
    const Node& node = nodes[i];
    Instruction instruction;
    instruction.kind = node.kind;
    instruction.compute_type = node.arguments[0] == kNone ? node.compute_type : nodes[node.arguments[0]].compute_type;
    instruction.index = node.index;
    instruction.reduce_op = node.reduce_op;
    instruction.element = node.kernel;
    instruction.correction = node.number;
    for (int k = 0; k < 3; ++k) {
      const std::uint32_t argument = node.arguments[k];
      if (argument == kNone) continue;
      instruction.arguments[k] = register_of[argument];
      const bool is_row = node.extent == Extent::kTile && nodes[argument].extent == Extent::kRow;
      if (node.kind == Kind::kElement && is_row) instruction.row_arguments |= static_cast<std::uint8_t>(1U << k);
      const bool is_column =
          bindings[argument] && bindings[argument]->kind == Binding::Kind::kColumns && program.tile_rows > 1;
      if (is_column) instruction.column_arguments |= static_cast<std::uint8_t>(1U << k);
      if (lies_across(argument)) instruction.across |= static_cast<std::uint8_t>(1U << k);
    }
    if (lies_across(i)) instruction.across |= 8U;
    switch (node.kind) {
      case Kind::kColumnSum:
        instruction.of_products = node.arguments[1] != kNone;
        break;
      case Kind::kReduce:
        instruction.of_products = node.arguments[1] != kNone;
        [[fallthrough]];
      case Kind::kTotal:
        instruction.reduce = kernels().reduce(node.reduce_op, instruction.compute_type);
        instruction.reduce_columns = kernels().reduce_columns(node.reduce_op, instruction.compute_type);
        break;
      case Kind::kMoments:
        instruction.moments = kernels().moments(instruction.compute_type);
        instruction.reduce_columns = kernels().join_moments(instruction.compute_type);
        break;
      case Kind::kLoad: {
        const Access& access = builder.accesses_[node.index];
        const bool by_rows = node.extent == Extent::kRow || program.interleaved;
        const std::int64_t stride = by_rows ? access.row_stride() : access.inner_stride;
        instruction.transfer = kernels().load(access.storage, stride != 1);
        break;
      }
      case Kind::kGather: {
        const Access& table = builder.accesses_[node.index];
        instruction.transfer = kernels().load(table.storage, table.inner_stride != 1);
        break;
      }
      case Kind::kAssemble: {
        const Access& access = builder.accesses_[node.index];
        const bool strided =
            std::ranges::any_of(access.parts, [](const Part& part) { return part.columns.stride != 1; });
        instruction.transfer = kernels().load(access.storage, strided);
        break;
      }
      case Kind::kStore: {
        const Access& access = builder.accesses_[node.index];
        const std::int64_t bytes = program.rows * program.columns * size_of(access.storage);
        instruction.by_rows = !builder.is_dense(access);
        const bool are_long = !instruction.by_rows || program.tile_columns * size_of(access.storage) >= kStreamRowBytes;
        const bool streams = bytes >= kStreamBytes && are_long && node.extent == Extent::kTile;
        instruction.transfer = kernels().store(access.storage, streams);
        break;
      }
      default:
        break;
    }
    if (node.kind == Kind::kReduce || node.kind == Kind::kMoments) {
      instruction.accumulator = program.accumulators;
      program.accumulators += node.kind == Kind::kMoments ? 3 : 1;
    }
    if (register_of[i] != 0xffff) instruction.out = register_of[i];
    return instruction;
  }

  /// Appends the instructions on values of rows, at the end of a phase or before the first one.
  void emit_rows(std::int32_t phase, std::vector<Instruction>& instructions) {
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      if (node.is_constant || node.works_on_tiles() || node.phase != phase) continue;
      instructions.push_back(instruction_of(i));
    }
  }

  void emit_phase(std::int32_t number) {
    Phase& phase = program.phases[static_cast<std::size_t>(number)];
    std::vector<std::uint32_t> order = tile_work(number);
    std::vector<std::size_t> last_use(nodes.size(), 0);
    for (std::size_t k = 0; k < order.size(); ++k) {
      for (const std::uint32_t argument : nodes[order[k]].arguments) {
        if (argument != kNone) last_use[argument] = k;
      }
    }
    free_slots.clear();
    std::vector<bool> bound(nodes.size(), false);
    const auto bind = [&](std::uint32_t i) {
      if (i == kNone || bound[i] || !bindings[i]) return;
      bound[i] = true;
      phase.bindings.push_back(*bindings[i]);
      phase.bindings.back().target = register_of[i];
    };
    std::vector<std::uint32_t> temporary;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const std::uint32_t i = order[k];
      bind(i);
      for (const std::uint32_t argument : nodes[i].arguments) bind(argument);
      const bool is_temporary = gives_tile(nodes[i]) && !bound[i];
      // Elementwise work may overwrite an argument that dies with it, if elements are as wide.
      release(temporary, last_use, k, nodes[i]);
      if (is_temporary) {
        register_of[i] = take_register(nodes[i].compute_type);
        temporary.push_back(i);
      }
      if (is_variance(nodes[i])) continue;
      Instruction instruction = instruction_of(i);
      if (nodes[i].kind == Kind::kMoments) instruction.out2 = variance_register(i);
      phase.tile.push_back(instruction);
      if (nodes[i].kind == Kind::kStore && is_stored_in_place(nodes[i])) phase.tile.pop_back();
    }
    for (const std::uint32_t i : temporary) register_of[i] = 0xffff;
    phase.streams = streams_of(order);
    emit_rows(number, phase.row);
  }

  /// The arrays that a phase reads in one piece for each tile, where they are more than caches hold.
  [[nodiscard]] std::vector<Stream> streams_of(const std::vector<std::uint32_t>& order) const {
    std::vector<bool> is_read(nodes.size(), false);
    for (const std::uint32_t i : order) {
      for (const std::uint32_t argument : nodes[i].arguments) {
        if (argument != kNone) is_read[argument] = true;
      }
    }
    std::vector<Stream> streams;
    std::int64_t bytes = 0;
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      if (!is_read[i] || !is_load(nodes[i]) || nodes[i].extent != Extent::kTile) continue;
      const Access& access = builder.accesses_[nodes[i].index];
      if (!builder.is_dense(access) || !lies_as_tiles()) continue;
      streams.push_back({access.array, size_of(access.storage)});
      bytes += program.rows * program.columns * size_of(access.storage);
    }
    return bytes < kStreamBytes ? std::vector<Stream>{} : streams;
  }

  [[nodiscard]] bool is_stored_in_place(const Node& store) const {
    return store.extent == Extent::kTile &&
           output_array[store.arguments[0]] == static_cast<std::int32_t>(builder.accesses_[store.index].array);
  }

  [[nodiscard]] std::uint16_t variance_register(std::uint32_t mean) const {
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      if (is_variance(nodes[i]) && nodes[i].pair == mean) return register_of[i];
    }
    return register_of[mean];
  }

  /// Instructions of a phase's tiles; loads come again in each phase that reads them.
  std::vector<std::uint32_t> tile_work(std::int32_t number) {
    std::vector<std::uint32_t> order;
    std::vector<bool> loaded(nodes.size(), false);
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      if (node.is_constant || is_load(node) || !node.works_on_tiles() || node.phase != number) continue;
      for (const std::uint32_t argument : node.arguments) {
        if (argument == kNone || !is_load(nodes[argument]) || loaded[argument]) continue;
        if (nodes[argument].extent != Extent::kTile || bindings[argument]) continue;
        loaded[argument] = true;
        order.push_back(argument);
      }
      order.push_back(i);
    }
    return order;
  }

  std::uint16_t take_register(ComputeType compute_type) {
    const std::int64_t size = program.tile_rows * program.tile_columns * size_of(compute_type);
    const auto fits = std::ranges::find_if(free_slots, [&](const FreeSlot& slot) { return slot.size == size; });
    std::int64_t offset = 0;
    if (fits != free_slots.end()) {
      offset = fits->offset;
      free_slots.erase(fits);
    } else {
      offset = take_scratch(size);
    }
    return add_register(compute_type, Extent::kTile, offset);
  }

  /// Gives back the memory of values whose last reader is instruction `k`.
  void release(std::vector<std::uint32_t>& temporary, const std::vector<std::size_t>& last_use, std::size_t k,
               const Node& reader) {
    std::erase_if(temporary, [&](std::uint32_t i) {
      const bool dies_here = last_use[i] == k && reader.kind == Kind::kElement && reader.extent == Extent::kTile &&
                             size_of(reader.compute_type) == size_of(nodes[i].compute_type);
      if (last_use[i] >= k && !dies_here) return false;
      const Register& reg = program.registers[register_of[i]];
      free_slots.push_back({reg.offset, program.tile_rows * program.tile_columns * size_of(reg.compute_type)});
      return true;
    });
  }
};

TileProgram TileBuilder::build() { return Plan(*this).run(); }

}  // namespace thunder::executors::cpu
