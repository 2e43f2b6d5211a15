#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "executors/tiles/column_sums.h"
#include "executors/tiles/scratch.h"
#include "executors/tiles/tile_program.h"
#include "executors/tiles/tile_transfers.h"

namespace thunder::executors::cpu {
namespace {

struct Run {
  const TileProgram& program;
  char* const* arrays;
  double* column_partials;  ///< [sum][task + block][column]
  double* total_partials;   ///< [task][total]
  std::atomic<bool> is_out_of_bounds = false;
};

/// One task: its tiles, one after the other.
class Task : TileTransfers {
 public:
  Task(Run& run, std::int64_t index)
      : TileTransfers(run.program, run.arrays, run.is_out_of_bounds),
        index_(index),
        scratch_(scratch_bytes(run.program)),
        column_sums_(run.program, index, run.column_partials,
                     scratch_.data() + run.program.scratch_bytes + accumulator_bytes(run.program)) {
    for (std::size_t i = 0; i < at_.size(); ++i) {
      const Register& reg = program_.registers[i];
      at_[i] = reg.extent == Extent::kConstant
                   ? reinterpret_cast<char*>(const_cast<double*>(program_.constants.data())) + reg.offset
                   : scratch_.data() + reg.offset;
    }
    accumulators_ = reinterpret_cast<double*>(scratch_.data() + program_.scratch_bytes);
    totals_ = run.total_partials + index * static_cast<std::int64_t>(program_.totals.size());
  }

  void execute() {
    const std::int64_t begin = program_.unit_count * index_ / program_.task_count;
    const std::int64_t end = program_.unit_count * (index_ + 1) / program_.task_count;
    const std::int64_t column_tiles =
        program_.splits_columns ? (program_.columns + program_.tile_columns - 1) / program_.tile_columns : 1;
    for (std::int64_t unit = begin; unit < end; ++unit) {
      block_ = unit / column_tiles / units_of_block(program_);
      // The first row of the tile, counted from the first row of its block.
      const std::int64_t row = unit / column_tiles % units_of_block(program_) * program_.tile_rows;
      first_row_ = block_ * program_.block_rows + row;
      height_ = std::min(program_.tile_rows, program_.block_rows - row);
      const std::int64_t first = program_.splits_columns ? unit % column_tiles * program_.tile_columns : 0;
      const std::int64_t last =
          program_.splits_columns ? std::min(first + program_.tile_columns, program_.columns) : program_.columns;
      run_rows(first, last);
    }
    column_sums_.flush(block_);
  }

 private:
  static std::int64_t accumulator_bytes(const TileProgram& program) {
    const std::int64_t bytes = std::int64_t{8} * program.accumulators * program.tile_rows;
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  static std::int64_t scratch_bytes(const TileProgram& program) {
    return program.scratch_bytes + accumulator_bytes(program) + ColumnSums::bytes_of(program);
  }

  void run_rows(std::int64_t first, std::int64_t last) {
    column_ = first;
    width_ = last - first;
    for (const Instruction& instruction : program_.before) execute_row(instruction);
    for (const Phase& phase : program_.phases) {
      for (const Instruction& instruction : phase.tile) begin(instruction);
      for (column_ = first; column_ < last; column_ += width_) {
        width_ = std::min(program_.tile_columns, last - column_);
        if (program_.stays_in_runs) width_ = std::min(width_, program_.run - column_ % program_.run);
        for (const Binding& binding : phase.bindings) bind(binding);
        for (std::size_t k = 0; k < phase.tile.size(); ++k) {
          fetch(phase, k);
          execute_tile(phase.tile[k]);
        }
      }
      for (const Instruction& instruction : phase.tile) end(instruction);
      for (const Instruction& instruction : phase.row) execute_row(instruction);
    }
    const bool ends_block = program_.block_rows != program_.rows && (first_row_ + height_) % program_.block_rows == 0;
    column_sums_.end_rows(height_, block_, ends_block);
  }

  /// Asks for a share of what the next tile reads, so that memory works while this one is computed.
  void fetch(const Phase& phase, std::size_t share) const {
    const auto shares = static_cast<std::int64_t>(phase.tile.size());
    const std::int64_t tile = height_ * width_;
    for (const Stream& stream : phase.streams) {
      const char* next = arrays_[stream.array] + next_offset() * stream.element_size;
      const std::int64_t lines = tile * stream.element_size / kAlignment;
      const std::int64_t end = lines * static_cast<std::int64_t>(share + 1) / shares;
      for (std::int64_t i = lines * static_cast<std::int64_t>(share) / shares; i < end; ++i) {
        __builtin_prefetch(next + i * kAlignment, 0, 2);  // into the second-level cache
      }
    }
  }

  void bind(const Binding& binding) {
    switch (binding.kind) {
      case Binding::Kind::kWholeRow:
        at_[binding.target] =
            scratch_.data() + program_.registers[binding.target].offset + column_ * height_ * binding.element_size;
        return;
      case Binding::Kind::kDense:
        at_[binding.target] = arrays_[binding.array] + dense_offset() * binding.element_size;
        return;
      case Binding::Kind::kAcross: {
        const std::int64_t side = program_.block_rows;
        const std::int64_t offset = (block_ * program_.columns + column_) * side + first_row_ % side;
        at_[binding.target] = arrays_[binding.array] + offset * binding.element_size;
        return;
      }
      case Binding::Kind::kColumns:
        at_[binding.target] = arrays_[binding.array] + (block_ * binding.block_stride + column_) * binding.element_size;
        return;
    }
  }

  double* accumulator(const Instruction& instruction, std::int64_t row) {
    const std::int64_t size = instruction.kind == Instruction::Kind::kMoments ? 3 : 1;
    return accumulators_ + instruction.accumulator * program_.tile_rows + row * size;
  }

  void begin(const Instruction& instruction) {
    if (instruction.kind == Instruction::Kind::kMoments) {
      std::fill_n(accumulator(instruction, 0), 3 * height_, 0.0);
    } else if (instruction.kind == Instruction::Kind::kReduce) {
      std::fill_n(accumulator(instruction, 0), height_, first_of(instruction));
    } else if (instruction.kind == Instruction::Kind::kPick) {
      std::memset(at_[instruction.out], 0, static_cast<std::size_t>(height_ * size_of(instruction.compute_type)));
    }
  }

  /// The first value of an accumulator.
  static double first_of(const Instruction& instruction) {
    const double sign = instruction.reduce_op == ReduceOp::kMax ? -1 : 1;
    const bool is_sum = instruction.reduce_op == ReduceOp::kSum;
    if (instruction.compute_type == ComputeType::kFloat || instruction.compute_type == ComputeType::kDouble) {
      return is_sum ? 0.0 : sign * std::numeric_limits<double>::infinity();
    }
    using Limits = std::numeric_limits<std::int64_t>;
    return std::bit_cast<double>(is_sum ? std::int64_t{0} : sign < 0 ? Limits::min() : Limits::max());
  }

  void end(const Instruction& instruction) {
    if (instruction.kind == Instruction::Kind::kMoments) {
      for (std::int64_t row = 0; row < height_; ++row) {
        const double* moments = accumulator(instruction, row);
        put(instruction.out, row, moments[0]);
        put(instruction.out2, row,
            std::max(moments[1], moments[1] != moments[1] ? moments[1] : 0.0) / (moments[2] - instruction.correction));
      }
    } else if (instruction.kind == Instruction::Kind::kReduce) {
      const double* totals = accumulator(instruction, 0);
      char* out = at_[instruction.out];
      if (program_.registers[instruction.out].compute_type == ComputeType::kFloat) {
        kernels().element(TileOp::kConvertToFloat, ComputeType::kDouble, 0)(out, totals, totals, totals, height_);
      } else {
        std::memcpy(out, totals, static_cast<std::size_t>(8 * height_));
      }
    }
  }

  void put(std::uint16_t target, std::int64_t row, double value) {
    if (program_.registers[target].compute_type == ComputeType::kFloat) {
      reinterpret_cast<float*>(at_[target])[row] = static_cast<float>(value);
    } else {
      reinterpret_cast<double*>(at_[target])[row] = value;
    }
  }

  void execute_row(const Instruction& instruction) {
    const auto& in = instruction.arguments;
    switch (instruction.kind) {
      case Instruction::Kind::kElement:
        instruction.element(at_[instruction.out], at_[in[0]], at_[in[1]], at_[in[2]], height_);
        return;
      case Instruction::Kind::kLoad:
        load_rows(instruction);
        return;
      case Instruction::Kind::kStore: {
        const Access& access = program_.accesses[instruction.index];
        instruction.transfer(arrays_[access.array] + first_row_ * size_of(access.storage), at_[in[0]],
                             {.count = height_});
        return;
      }
      case Instruction::Kind::kTotal:
        instruction.reduce(totals_ + instruction.index, at_[in[0]], height_);
        return;
      default:
        return;
    }
  }

  void execute_tile(const Instruction& instruction) {
    const auto& in = instruction.arguments;
    const std::int64_t size = size_of(instruction.compute_type);
    switch (instruction.kind) {
      case Instruction::Kind::kElement:
        execute_element(instruction);
        return;
      case Instruction::Kind::kLoad:
        load_tile(instruction);
        return;
      case Instruction::Kind::kGather:
        gather(instruction);
        return;
      case Instruction::Kind::kAssemble:
        assemble(instruction);
        return;
      case Instruction::Kind::kStore:
        store_tile(instruction);
        return;
      case Instruction::Kind::kReduce:
        if (program_.interleaved) {
          instruction.reduce_columns(accumulator(instruction, 0), at_[in[0]],
                                     {height_, width_, piece_step(instruction, 0)});
          return;
        }
        for (std::int64_t row = 0; row < height_; ++row) {
          const std::int64_t step = row * width_ * size;
          double* total = accumulator(instruction, row);
          if (instruction.of_products) {
            kernels().sum_products(total, at_[in[0]] + step, at_[in[1]] + step, width_);
          } else {
            instruction.reduce(total, at_[in[0]] + step, width_);
          }
        }
        return;
      case Instruction::Kind::kMoments:
        if (program_.interleaved) {
          instruction.reduce_columns(accumulator(instruction, 0), at_[in[0]],
                                     {height_, width_, piece_step(instruction, 0)});
          return;
        }
        for (std::int64_t row = 0; row < height_; ++row) {
          instruction.moments(accumulator(instruction, row), at_[in[0]] + row * width_ * size, width_);
        }
        return;
      case Instruction::Kind::kPick:
        for (std::int64_t row = 0; row < height_; ++row) {
          const std::int64_t column = column_in_tile(in[1], row);
          if (column < 0 || column >= width_) continue;
          std::memcpy(at_[instruction.out] + row * size, at_[in[0]] + place(row, column) * size,
                      static_cast<std::size_t>(size));
        }
        return;
      case Instruction::Kind::kScatterAdd:
        scatter_add(instruction);
        return;
      case Instruction::Kind::kColumnSum:
        column_sums_.add(instruction, at_[in[0]], at_[in[1]], column_, height_, width_);
        return;
      case Instruction::Kind::kTotal:
        instruction.reduce(totals_ + instruction.index, at_[in[0]], height_ * width_);
        return;
    }
  }

  void execute_element(const Instruction& instruction) {
    const auto& in = instruction.arguments;
    if (instruction.row_arguments == 0 && instruction.column_arguments == 0 && instruction.across == 0) {
      instruction.element(at_[instruction.out], at_[in[0]], at_[in[1]], at_[in[2]], height_ * width_);
      return;
    }
    char* pointers[3];
    std::int64_t steps[3];
    for (int i = 0; i < 3; ++i) {
      const Register& reg = program_.registers[in[i]];
      pointers[i] = at_[in[i]];
      const bool is_row = ((instruction.row_arguments >> i) & 1) != 0;
      const bool is_same = reg.extent == Extent::kConstant || ((instruction.column_arguments >> i) & 1) != 0;
      const std::int64_t row_step = program_.interleaved ? 0 : 1;
      steps[i] = is_same ? 0 : size_of(reg.compute_type) * (is_row ? row_step : piece_step(instruction, i));
    }
    const std::int64_t step = size_of(program_.registers[instruction.out].compute_type) * piece_step(instruction, 3);
    const std::int64_t pieces = height_ * width_ / piece();
    for (std::int64_t i = 0; i < pieces; ++i) {
      instruction.element(at_[instruction.out] + i * step, pointers[0] + i * steps[0], pointers[1] + i * steps[1],
                          pointers[2] + i * steps[2], piece());
    }
  }

  /// Elements of a tile that follow one another in memory: of a row, or of a column where rows lie side by side.
  [[nodiscard]] std::int64_t piece() const { return program_.interleaved ? height_ : width_; }
  /// From one to the next, of an argument, or of the result (3).
  [[nodiscard]] std::int64_t piece_step(const Instruction& instruction, int i) const {
    return ((instruction.across >> i) & 1) != 0 ? program_.block_rows : piece();
  }
  /// Where an element of a tile is.
  [[nodiscard]] std::int64_t place(std::int64_t row, std::int64_t column) const {
    return program_.interleaved ? column * height_ + row : row * width_ + column;
  }

  [[nodiscard]] std::int64_t column_in_tile(std::uint16_t source, std::int64_t row) {
    const std::int64_t column = reinterpret_cast<const std::int64_t*>(at_[source])[row];
    if (column < 0 || column >= program_.columns) is_out_of_bounds_ = true;
    return column - column_;
  }

  void scatter_add(const Instruction& instruction) {
    const auto& in = instruction.arguments;
    const std::int64_t size = size_of(instruction.compute_type);
    if (at_[instruction.out] != at_[in[0]]) {
      std::memcpy(at_[instruction.out], at_[in[0]], static_cast<std::size_t>(height_ * width_ * size));
    }
    for (std::int64_t row = 0; row < height_; ++row) {
      const std::int64_t column = column_in_tile(in[1], row);
      if (column < 0 || column >= width_) continue;
      const std::int64_t element = place(row, column);
      if (instruction.compute_type == ComputeType::kFloat) {
        reinterpret_cast<float*>(at_[instruction.out])[element] += reinterpret_cast<const float*>(at_[in[2]])[row];
      } else {
        reinterpret_cast<double*>(at_[instruction.out])[element] += reinterpret_cast<const double*>(at_[in[2]])[row];
      }
    }
  }

  std::int64_t index_;
  Scratch scratch_;
  ColumnSums column_sums_;
  double* accumulators_ = nullptr;
  double* totals_ = nullptr;
};

void combine_totals(const Run& run) {
  const TileProgram& program = run.program;
  std::vector<double> totals(program.totals.size(), 0.0);
  for (std::int64_t task = 0; task < program.task_count; ++task) {
    for (std::size_t i = 0; i < totals.size(); ++i) {
      totals[i] += run.total_partials[task * static_cast<std::int64_t>(totals.size()) + static_cast<std::int64_t>(i)];
    }
  }
  for (std::size_t i = 0; i < totals.size(); ++i) {
    const Sum& sum = program.totals[i];
    const double divisor = sum.divisor < 0 ? 1.0 : totals[static_cast<std::size_t>(sum.divisor)];
    write_number(sum, run.arrays, sum.array, 0, totals[i] * sum.scale / divisor);
  }
}

}  // namespace

bool run(const TileProgram& program, char* const* arrays, RunTasks run_tasks) {
  const std::int64_t column_partials = program.column_partials * program.columns;
  const std::int64_t total_partials = program.task_count * static_cast<std::int64_t>(program.totals.size());
  Memory partials;
  if (column_partials + total_partials > 0) {
    partials = allocate(8 * (column_partials + total_partials));
    std::memset(partials.get(), 0, static_cast<std::size_t>(8 * (column_partials + total_partials)));
  }
  auto* numbers = reinterpret_cast<double*>(partials.get());
  Run state{program, arrays, numbers, numbers == nullptr ? nullptr : numbers + column_partials};
  run_tasks(
      program.task_count, program.parallel,
      [](void* context, std::int64_t index) { Task(*static_cast<Run*>(context), index).execute(); }, &state);
  if (!program.column_sums.empty()) {
    constexpr std::int64_t kParts = 8;
    run_tasks(
        kParts, program.parallel,
        [](void* context, std::int64_t index) {
          const Run& run = *static_cast<const Run*>(context);
          combine_columns(run.program, run.column_partials, run.arrays, index, kParts);
        },
        &state);
  }
  if (!program.totals.empty()) combine_totals(state);
  return !state.is_out_of_bounds;
}

}  // namespace thunder::executors::cpu
