#include "executors/tiles/column_sums.h"

#include <algorithm>
#include <cstring>

namespace thunder::executors::cpu {
namespace {

/// Rows that are added in the compute type itself before the sum goes to double.
constexpr std::int64_t kRowsBetweenFlushes = 64;

/// How Chan's formula joins moments of so many elements each.
struct Shares {
  double of_distance;  ///< by which the mean moves
  double of_square;    ///< by which the sum of squares grows
  Shares(double count, double added) : of_distance(added / (count + added)), of_square(count * of_distance) {}

  void join(double& mean, double& squares, double added_mean, double added_squares) const {
    const double distance = added_mean - mean;
    mean += distance * of_distance;
    squares += added_squares + distance * distance * of_square;
  }
};

std::int64_t task_of(const TileProgram& program, std::int64_t unit) {
  std::int64_t task = unit * program.task_count / program.unit_count;
  while (program.unit_count * (task + 1) / program.task_count <= unit) ++task;
  return task;
}

}  // namespace

ColumnSums::ColumnSums(const TileProgram& program, std::int64_t task, double* partials, char* memory)
    : program_(program), task_(task), partials_(partials), memory_(memory) {
  clear();
}

void ColumnSums::clear() {
  rows_ = 0;
  std::memset(memory_, 0, static_cast<std::size_t>(bytes_of(program_)));
}

void ColumnSums::add(const Instruction& instruction, const char* values, const char* factors, std::int64_t column,
                     std::int64_t height, std::int64_t width) {
  const Sum& sum = program_.column_sums[instruction.index];
  const std::int64_t size = size_of(instruction.compute_type);
  if (sum.is_moments) {
    double* moments = reinterpret_cast<double*>(array(sum)) + column;
    kernels().add_moments(instruction.compute_type, moments, values, {height, width, program_.columns}, rows_ == 0);
    return;
  }
  char* sums = array(sum) + column * size;
  for (std::int64_t row = 0; row < height; ++row) {
    const std::int64_t step = row * width * size;
    if (instruction.of_products) {
      kernels().add_products_to(sums, values + step, factors + step, width);
    } else {
      kernels().add_to(instruction.compute_type, sums, values + step, width);
    }
  }
}

void ColumnSums::end_rows(std::int64_t height, std::int64_t block, bool ends_block) {
  rows_ += height;
  if (rows_ >= kRowsBetweenFlushes || ends_block) flush(block);
}

void ColumnSums::flush(std::int64_t block) {
  if (rows_ == 0 || program_.column_sums.empty()) return;
  for (const Sum& sum : program_.column_sums) {
    const std::int64_t place = sum.partials + (task_ + (sum.blocks == 1 ? 0 : block)) * sum.arrays();
    double* partial = partials_ + place * program_.columns;
    if (sum.is_moments) {
      flush_moments(sum, partial);
    } else {
      flush_sum(sum, partial);
    }
  }
  clear();
}

void ColumnSums::flush_sum(const Sum& sum, double* partial) const {
  const char* sums = array(sum);
  const bool is_float = sum.compute_type == ComputeType::kFloat;
  for (std::int64_t column = 0; column < program_.columns; ++column) {
    partial[column] += is_float ? static_cast<double>(reinterpret_cast<const float*>(sums)[column])
                                : reinterpret_cast<const double*>(sums)[column];
  }
}

void ColumnSums::flush_moments(const Sum& sum, double* partial) const {
  const std::int64_t columns = program_.columns;
  double* means = partial;
  double* squares = means + columns;
  double& count = squares[columns];
  const auto added = static_cast<double>(rows_);
  const Shares shares(count, added);
  const auto* first = reinterpret_cast<const double*>(array(sum));
  const double* distances = first + columns;
  const double* squared = distances + columns;
  for (std::int64_t column = 0; column < columns; ++column) {
    const double rest = squared[column] - distances[column] * distances[column] / added;
    shares.join(means[column], squares[column], first[column] + distances[column] / added, rest < 0 ? 0 : rest);
  }
  count += added;
}

void write_number(const Sum& sum, char* const* arrays, std::int32_t array, std::int64_t element, double value) {
  if (array < 0) return;
  char* target = arrays[array] + element * size_of(sum.storage);
  if (sum.compute_type == ComputeType::kFloat) {
    const auto narrow = static_cast<float>(value);
    kernels().store(sum.storage, false)(target, &narrow, {});
  } else {
    kernels().store(sum.storage, false)(target, &value, {});
  }
}

void combine_columns(const TileProgram& program, const double* partials, char* const* arrays, std::int64_t part,
                     std::int64_t part_count) {
  const std::int64_t begin = program.columns * part / part_count;
  const std::int64_t end = program.columns * (part + 1) / part_count;
  for (const Sum& sum : program.column_sums) {
    const std::int64_t units = program.unit_count / sum.blocks;
    for (std::int64_t block = 0; block < sum.blocks; ++block) {
      const std::int64_t first = task_of(program, block * units) + block;
      const std::int64_t last = task_of(program, (block + 1) * units - 1) + block;
      for (std::int64_t column = begin; column < end; ++column) {
        const auto partial = [&](std::int64_t place, std::int64_t row) {
          return partials + (sum.partials + place * sum.arrays() + row) * program.columns;
        };
        const std::int64_t element = block * program.columns + column;
        if (sum.is_moments) {
          double mean = 0;
          double squares = 0;
          double count = 0;
          for (std::int64_t place = first; place <= last; ++place) {
            const double added = *partial(place, 2);
            Shares(count, added).join(mean, squares, partial(place, 0)[column], partial(place, 1)[column]);
            count += added;
          }
          write_number(sum, arrays, sum.array, element, mean);
          write_number(sum, arrays, sum.variance, element, squares / count * sum.scale);
        } else {
          double total = 0;
          for (std::int64_t place = first; place <= last; ++place) total += partial(place, 0)[column];
          write_number(sum, arrays, sum.array, element, total * sum.scale);
        }
      }
    }
  }
}

}  // namespace thunder::executors::cpu
