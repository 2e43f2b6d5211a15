#include <cmath>
#include <cstdint>
#include <vector>

#include "check.h"
#include "executors/tiles/tile_builder.h"

namespace thunder::executors::cpu {
namespace {

void one_after_the_other(std::int64_t count, bool, void (*task)(void*, std::int64_t), void* context) {
  for (std::int64_t i = 0; i < count; ++i) task(context, i);
}
void the_last_first(std::int64_t count, bool, void (*task)(void*, std::int64_t), void* context) {
  while (count > 0) task(context, --count);
}

Access dense(std::uint32_t array, std::int64_t columns) {
  return {array, Storage::kFloat, {columns}, 1, Extent::kTile};
}
Access row(std::uint32_t array) { return {array, Storage::kFloat, {1}, 0, Extent::kRow}; }

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i) * 0.37F) * 3;
  return values;
}
template <typename T>
char* bytes(std::vector<T>& values) {
  return reinterpret_cast<char*>(values.data());
}

TileBuilder::Value apply(TileBuilder& builder, TileOp op, std::vector<TileBuilder::Value> arguments) {
  return builder.element(op, arguments).value();
}

/// exp(x - max) / sum, in three phases.
void softmax(TileBuilder& builder, std::int64_t columns) {
  const auto x = builder.load(dense(0, columns));
  const auto shifted = apply(builder, TileOp::kSubtract, {x, builder.reduce(ReduceOp::kMax, x)});
  const auto exponentials = apply(builder, TileOp::kExp, {shifted});
  const auto sum = builder.reduce(ReduceOp::kSum, exponentials);
  builder.store(apply(builder, TileOp::kDivide, {exponentials, sum}), 1, Storage::kFloat);
}

}  // namespace

TEST(rows_shorter_and_longer_than_a_tile) {
  for (const std::int64_t columns : {3, 64, 1000, 2048, 5001}) {
    const std::int64_t rows = 7;
    TileBuilder builder({{rows}, columns, false});
    softmax(builder, columns);
    const TileProgram program = builder.build();
    CHECK_EQ(program.phases.size(), std::size_t{3});
    std::vector<float> x = numbers(static_cast<std::size_t>(rows * columns));
    std::vector<float> y(x.size(), -1);
    char* arrays[] = {bytes(x), bytes(y)};
    CHECK(run(program, arrays, &one_after_the_other));
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(static_cast<double>(x[r * columns + c]));
      for (std::int64_t c = 0; c < columns; ++c) {
        CHECK(std::abs(y[r * columns + c] - std::exp(static_cast<double>(x[r * columns + c])) / sum) < 1e-6);
      }
    }
  }
}

/// Softmax of what the middle one of three dimensions keeps, beside sums of its rows.
TEST(rows_of_several_runs) {
  for (const std::int64_t run : {3, 40, 300, 2500}) {
    const std::int64_t rows = 21;
    const std::int64_t runs = 3;
    const Access array{0, Storage::kFloat, {run}, 1, Extent::kTile, run, rows * run};
    TileBuilder builder({{rows}, runs * run, false, run});
    const auto x = builder.load(array);
    const auto exponentials = apply(builder, TileOp::kExp, {x});
    const auto sum = builder.reduce(ReduceOp::kSum, exponentials);
    builder.store(apply(builder, TileOp::kDivide, {exponentials, sum}), 1, Storage::kFloat);
    builder.store(sum, 2, Storage::kFloat);
    const TileProgram program = builder.build();
    std::vector<float> values = numbers(static_cast<std::size_t>(runs * rows * run));
    std::vector<float> out(values.size(), -1);
    std::vector<float> sums(static_cast<std::size_t>(rows));
    char* arrays[] = {bytes(values), bytes(out), bytes(sums)};
    CHECK(cpu::run(program, arrays, &one_after_the_other));
    for (std::int64_t r = 0; r < rows; ++r) {
      double expected = 0;
      const auto place = [&](std::int64_t c) { return (c / run * rows + r) * run + c % run; };
      for (std::int64_t c = 0; c < runs * run; ++c) expected += std::exp(static_cast<double>(values[place(c)]));
      CHECK(std::abs(sums[r] - expected) < 1e-5 * expected);
      for (std::int64_t c = 0; c < runs * run; ++c) {
        CHECK(std::abs(out[place(c)] - std::exp(static_cast<double>(values[place(c)])) / expected) < 1e-6);
      }
    }
  }
}

/// Two arrays in a larger one: rows 1 to 4, columns 2 to 2 + width of the first, and the last rows of the second, which
/// reaches out of the result and hides some of the first.
TEST(parts_that_are_put_together) {
  for (const std::int64_t width : {3, 200, 3000}) {
    const std::int64_t rows = 6;
    const std::int64_t columns = width + 4;
    Access joined;
    joined.parts = {{0, {{1, 5, width}}, {0, 1, 0}, {2, 2 + width, 1}}, {1, {{4, 9, 0}}, {0, 1, 0}, {-1, width, 1}}};
    TileBuilder builder({{rows}, columns, true});
    builder.store(apply(builder, TileOp::kNegate, {builder.assemble(joined, builder.constant(ComputeType::kFloat, 7))}),
                  2, Storage::kFloat);
    const TileProgram program = builder.build();
    std::vector<float> first = numbers(static_cast<std::size_t>(4 * width));
    std::vector<float> second = numbers(static_cast<std::size_t>(width + 1));
    std::vector<float> out(static_cast<std::size_t>(rows * columns), -1);
    char* arrays[] = {bytes(first), bytes(second), bytes(out)};
    CHECK(run(program, arrays, &one_after_the_other));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        float expected = 7;
        if (r >= 1 && r < 5 && c >= 2 && c < 2 + width) expected = first[(r - 1) * width + c - 2];
        if (r >= 4 && c < width) expected = second[c + 1];
        CHECK_EQ(out[r * columns + c], -expected);
      }
    }
  }
}

/// Softmax over the middle one of three dimensions.
TEST(rows_interleaved) {
  for (const std::int64_t columns : {3, 40, 700}) {
    for (const std::int64_t side : {70, 1000}) {
      const std::int64_t blocks = 2;
      TileDomain domain{{blocks, side}, columns, false};
      domain.blocks = blocks;
      domain.interleaved = true;
      TileBuilder builder(domain);
      const auto x = builder.load({0, Storage::kFloat, {columns * side, 1}, side, Extent::kTile});
      const auto shifted = apply(builder, TileOp::kSubtract, {x, builder.reduce(ReduceOp::kMax, x)});
      const auto exponentials = apply(builder, TileOp::kExp, {shifted});
      const auto sum = builder.reduce(ReduceOp::kSum, exponentials);
      builder.store(apply(builder, TileOp::kDivide, {exponentials, sum}), 1, Storage::kFloat);
      builder.store(builder.moments(x, 0).second, 2, Storage::kFloat);
      const TileProgram program = builder.build();
      std::vector<float> values = numbers(static_cast<std::size_t>(blocks * columns * side));
      std::vector<float> out(values.size(), -1);
      std::vector<float> variances(static_cast<std::size_t>(blocks * side));
      char* arrays[] = {bytes(values), bytes(out), bytes(variances)};
      CHECK(cpu::run(program, arrays, &the_last_first));
      for (std::int64_t r = 0; r < blocks * side; ++r) {
        const std::int64_t first = r / side * columns * side + r % side;
        double total = 0;
        double mean = 0;
        double variance = 0;
        const auto at = [&](std::int64_t c) { return static_cast<double>(values[first + c * side]); };
        for (std::int64_t c = 0; c < columns; ++c) total += std::exp(at(c)), mean += at(c) / columns;
        for (std::int64_t c = 0; c < columns; ++c) {
          CHECK(std::abs(out[first + c * side] - std::exp(at(c)) / total) < 1e-6);
          variance += (at(c) - mean) * (at(c) - mean) / columns;
        }
        CHECK(std::abs(variances[r] - variance) < 1e-5);
      }
    }
  }
}

TEST(column_sums_and_totals_do_not_depend_on_who_runs_what) {
  const std::int64_t rows = 501;
  const std::int64_t columns = 130;
  TileBuilder builder({{rows}, columns, false});
  const auto x = builder.load(dense(0, columns));
  builder.column_sum(x, 1, Storage::kFloat, 1);
  const std::uint32_t sum = builder.total(x, std::nullopt, Storage::kFloat, 1, std::nullopt);
  builder.total(apply(builder, TileOp::kSquare, {x}), 2, Storage::kFloat, 1, sum);
  const TileProgram program = builder.build();
  CHECK(program.task_count > 1);
  std::vector<float> values = numbers(static_cast<std::size_t>(rows * columns));
  std::vector<std::vector<float>> results;
  for (const RunTasks run_tasks : {&one_after_the_other, &the_last_first}) {
    std::vector<float> sums(static_cast<std::size_t>(columns));
    std::vector<float> quotient(1);
    char* arrays[] = {bytes(values), bytes(sums), bytes(quotient)};
    CHECK(run(program, arrays, run_tasks));
    sums.push_back(quotient[0]);
    results.push_back(std::move(sums));
  }
  CHECK(results[0] == results[1]);
  double total = 0;
  double squares = 0;
  for (const float value : values) total += value, squares += static_cast<double>(value) * value;
  CHECK(std::abs(results[0].back() - squares / total) < 1e-4 * std::abs(squares / total));
}

TEST(moments_of_columns_are_exact_to_a_rounding_far_from_zero) {
  for (const std::int64_t block_rows : {1, 70, 300}) {
    const std::int64_t blocks = 5;
    const std::int64_t columns = 130;
    TileDomain domain{{blocks * block_rows}, columns, false};
    domain.blocks = blocks;
    TileBuilder builder(domain);
    builder.column_moments(builder.load(dense(0, columns)), 1, 2, Storage::kFloat, 1, blocks);
    const TileProgram program = builder.build();
    std::vector<float> values = numbers(static_cast<std::size_t>(blocks * block_rows * columns));
    for (float& value : values) value += 1000;
    std::vector<float> means(static_cast<std::size_t>(blocks * columns));
    std::vector<float> variances(means.size());
    char* arrays[] = {bytes(values), bytes(means), bytes(variances)};
    CHECK(cpu::run(program, arrays, &the_last_first));
    for (std::int64_t i = 0; i < blocks * columns; ++i) {
      const float* first = values.data() + i / columns * block_rows * columns + i % columns;
      double mean = 0;
      double squares = 0;
      for (std::int64_t r = 0; r < block_rows; ++r) mean += static_cast<double>(first[r * columns]) / block_rows;
      for (std::int64_t r = 0; r < block_rows; ++r) squares += std::pow(first[r * columns] - mean, 2);
      CHECK(std::abs(means[i] - mean) < 1e-4);
      CHECK(std::abs(variances[i] - squares / block_rows) <= 1e-5 * squares / block_rows);
    }
  }
}

TEST(sums_of_blocks_of_rows) {
  for (const std::int64_t block_rows : {1, 30, 100}) {
    const std::int64_t blocks = 13;
    const std::int64_t columns = 130;
    TileDomain domain{{blocks * block_rows}, columns, false};
    domain.blocks = blocks;
    TileBuilder builder(domain);
    const auto x = builder.load(dense(0, columns));
    builder.column_sum(x, 1, Storage::kFloat, 1, blocks);
    builder.column_sum(x, 2, Storage::kFloat, 0.5);
    const TileProgram program = builder.build();
    std::vector<float> values = numbers(static_cast<std::size_t>(blocks * block_rows * columns));
    std::vector<float> of_blocks(static_cast<std::size_t>(blocks * columns));
    std::vector<float> of_all(static_cast<std::size_t>(columns));
    char* arrays[] = {bytes(values), bytes(of_blocks), bytes(of_all)};
    CHECK(cpu::run(program, arrays, &the_last_first));
    for (std::int64_t c = 0; c < columns; ++c) {
      double all = 0;
      for (std::int64_t b = 0; b < blocks; ++b) {
        double sum = 0;
        for (std::int64_t r = b * block_rows; r < (b + 1) * block_rows; ++r) sum += values[r * columns + c];
        CHECK(std::abs(of_blocks[b * columns + c] - sum) < 1e-4);
        all += sum;
      }
      CHECK(std::abs(of_all[c] - all / 2) < 1e-3);
    }
  }
}

TEST(strides_and_rows_of_inputs) {
  const std::int64_t rows = 6;
  const std::int64_t columns = 10;
  TileBuilder builder({{2, 3}, columns, true});
  const auto transposed = builder.load({0, Storage::kFloat, {3, 1}, 6, Extent::kTile});
  const auto bias = builder.load({1, Storage::kFloat, {0, 0}, 1, Extent::kTile});
  const auto scale = builder.load({2, Storage::kFloat, {0, 1}, 0, Extent::kRow});
  const auto sum = apply(builder, TileOp::kAdd, {apply(builder, TileOp::kMultiply, {transposed, scale}), bias});
  builder.store(sum, 3, Storage::kFloat);
  const TileProgram program = builder.build();
  std::vector<float> x = numbers(60);
  std::vector<float> b = numbers(10);
  std::vector<float> s = {2, 3, 5};
  std::vector<float> y(60);
  char* arrays[] = {bytes(x), bytes(b), bytes(s), bytes(y)};
  CHECK(run(program, arrays, &one_after_the_other));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) CHECK_EQ(y[r * columns + c], x[r + 6 * c] * s[r % 3] + b[c]);
  }
}

TEST(a_column_that_does_not_exist_is_told) {
  TileBuilder builder({{4}, 10, false});
  const auto x = builder.load(dense(0, 10));
  const auto at = builder.load({1, Storage::kInt64, {1}, 0, Extent::kRow});
  builder.store(builder.pick(x, at), 2, Storage::kFloat);
  const TileProgram program = builder.build();
  std::vector<float> values = numbers(40);
  std::vector<std::int64_t> columns = {1, 9, 0, 4};
  std::vector<float> picked(4);
  char* arrays[] = {bytes(values), bytes(columns), bytes(picked)};
  CHECK(run(program, arrays, &one_after_the_other));
  for (std::size_t r = 0; r < 4; ++r) CHECK_EQ(picked[r], values[10 * r + static_cast<std::size_t>(columns[r])]);
  columns[2] = 10;
  CHECK(!run(program, arrays, &one_after_the_other));
}

TEST(an_input_is_overwritten_when_a_tile_of_it_was_read) {
  const std::int64_t columns = 5000;
  TileBuilder builder({{3}, columns, true});
  const auto x = builder.load(dense(0, columns));
  const auto y = builder.load(dense(1, columns));
  const auto sum = apply(builder, TileOp::kAdd, {x, y});
  const auto difference = apply(builder, TileOp::kSubtract, {x, y});
  builder.store(sum, 2, Storage::kFloat);
  builder.store(difference, 3, Storage::kFloat);
  builder.overwrite(0, 2);
  builder.overwrite(1, 3);
  const TileProgram program = builder.build();
  CHECK(program.overwrites_inputs);
  const std::vector<float> numbers_before = numbers(static_cast<std::size_t>(3 * columns));
  std::vector<float> a = numbers_before;
  std::vector<float> b(a.rbegin(), a.rend());
  const std::vector<float> reversed = b;
  char* arrays[] = {bytes(a), bytes(b), bytes(a), bytes(b)};
  CHECK(run(program, arrays, &the_last_first));
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK_EQ(a[i], numbers_before[i] + reversed[i]);
    CHECK_EQ(b[i], numbers_before[i] - reversed[i]);
  }
}

TEST(what_is_read_again_is_not_overwritten) {
  TileBuilder builder({{4}, 100, false});
  softmax(builder, 100);
  builder.overwrite(0, 1);
  CHECK(!builder.build().overwrites_inputs);
  TileBuilder rows({{4}, 100, true});
  const auto x = rows.load(dense(0, 100));
  const auto first = rows.load({0, Storage::kFloat, {0}, 1, Extent::kTile});
  rows.store(apply(rows, TileOp::kSubtract, {x, first}), 1, Storage::kFloat);
  rows.overwrite(0, 1);
  CHECK(!rows.build().overwrites_inputs);
  TileBuilder early({{4}, 100, true});
  const auto y = early.load(dense(0, 100));
  early.store(apply(early, TileOp::kExp, {y}), 1, Storage::kFloat);
  early.store(apply(early, TileOp::kSin, {y}), 2, Storage::kFloat);
  early.overwrite(0, 1);
  CHECK(!early.build().overwrites_inputs);
}

TEST(rows_of_a_table_and_runs_of_columns) {
  TileBuilder builder({{3}, 6, true});
  Access table{0, Storage::kFloat, {}, 1, Extent::kTile};
  table.table_rows = 5;
  table.table_stride = 6;
  const auto chosen = builder.gather(table, builder.load({1, Storage::kInt64, {1}, 0, Extent::kRow}));
  Access halves{2, Storage::kFloat, {2}, 0, Extent::kTile};
  halves.run = 3;
  halves.run_stride = 1;
  builder.store(apply(builder, TileOp::kAdd, {chosen, builder.load(halves)}), 3, Storage::kFloat);
  const TileProgram program = builder.build();
  std::vector<float> x = numbers(30);
  std::vector<std::int64_t> indices = {4, 0, 2};
  std::vector<float> added = {1, 2, 3, 4, 5, 6};
  std::vector<float> y(18);
  char* arrays[] = {bytes(x), bytes(indices), bytes(added), bytes(y)};
  CHECK(run(program, arrays, &one_after_the_other));
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t c = 0; c < 6; ++c) {
      CHECK_EQ(y[6 * r + c], x[6 * static_cast<std::size_t>(indices[r]) + c] + added[2 * r + c / 3]);
    }
  }
  indices[1] = 5;
  CHECK(!run(program, arrays, &one_after_the_other));
}

TEST(equal_operations_are_one_and_constants_are_folded) {
  TileBuilder builder({{4}, 10, true});
  const auto x = builder.load(dense(0, 10));
  CHECK(apply(builder, TileOp::kExp, {x}) == apply(builder, TileOp::kExp, {x}));
  const auto two = builder.constant(ComputeType::kFloat, 2);
  const auto four = apply(builder, TileOp::kMultiply, {two, two});
  CHECK(four == builder.constant(ComputeType::kFloat, 4));
}

/// (x - a row's) * a column's + a column's, its sums, and those of its squares.
TEST(pairs_are_one_operation_with_the_numbers_of_two) {
  for (const std::int64_t columns : {3, 64, 2500}) {
    const std::int64_t rows = 77;
    TileBuilder builder({{rows}, columns, false});
    const Access of_columns{2, Storage::kFloat, {0}, 1, Extent::kTile};
    const auto x = builder.load(dense(0, columns));
    const auto weight = builder.load(of_columns);
    const auto scaled =
        apply(builder, TileOp::kMultiply, {apply(builder, TileOp::kSubtract, {x, builder.load(row(1))}), weight});
    const auto result = apply(builder, TileOp::kAdd, {scaled, weight});
    builder.store(result, 3, Storage::kFloat);
    builder.store(builder.reduce(ReduceOp::kSum, apply(builder, TileOp::kMultiply, {result, x})), 4, Storage::kFloat);
    builder.column_sum(apply(builder, TileOp::kSquare, {result}), 5, Storage::kFloat, 1);
    const TileProgram program = builder.build();
    std::size_t elements = 0;
    for (const Instruction& instruction : program.phases[0].tile) {
      elements += instruction.kind == Instruction::Kind::kElement ? 1 : 0;
      CHECK(instruction.kind != Instruction::Kind::kLoad);
    }
    CHECK_EQ(elements, std::size_t{2});

    std::vector<float> values = numbers(static_cast<std::size_t>(rows * columns));
    std::vector<float> of_rows = numbers(static_cast<std::size_t>(rows));
    std::vector<float> of_column = numbers(static_cast<std::size_t>(columns));
    std::vector<float> out(values.size());
    std::vector<float> products(of_rows.size());
    std::vector<float> squares(of_column.size());
    char* arrays[] = {bytes(values), bytes(of_rows), bytes(of_column), bytes(out), bytes(products), bytes(squares)};
    CHECK(run(program, arrays, &one_after_the_other));
    std::vector<double> expected(squares.size(), 0);
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (std::int64_t c = 0; c < columns; ++c) {
        const float difference = values[r * columns + c] - of_rows[r];
        const float product = difference * of_column[c];
        CHECK_EQ(out[r * columns + c], product + of_column[c]);
        sum += double{out[r * columns + c]} * values[r * columns + c];
        expected[c] += double{out[r * columns + c]} * out[r * columns + c];
      }
      CHECK(std::abs(products[r] - sum) < 1e-5 * (1 + std::abs(sum)) * static_cast<double>(columns));
    }
    for (std::int64_t c = 0; c < columns; ++c) CHECK(std::abs(squares[c] - expected[c]) < 1e-5 * (1 + expected[c]));
  }
}

TEST(a_value_that_is_read_twice_is_not_part_of_a_pair) {
  TileBuilder builder({{4}, 16, false});
  const auto x = builder.load(dense(0, 16));
  const auto square = apply(builder, TileOp::kMultiply, {x, x});
  builder.store(apply(builder, TileOp::kAdd, {square, x}), 1, Storage::kFloat);
  builder.store(apply(builder, TileOp::kSubtract, {square, x}), 2, Storage::kFloat);
  const TileProgram program = builder.build();
  std::vector<float> values = numbers(64);
  std::vector<float> sum(64);
  std::vector<float> difference(64);
  char* arrays[] = {bytes(values), bytes(sum), bytes(difference)};
  CHECK(run(program, arrays, &one_after_the_other));
  for (std::size_t i = 0; i < 64; ++i) {
    const float product = values[i] * values[i];
    CHECK_EQ(sum[i], product + values[i]);
    CHECK_EQ(difference[i], product - values[i]);
  }
}

TEST(registers_that_die_are_used_again) {
  TileBuilder builder({{64}, 64, true});
  auto value = builder.load({0, Storage::kBfloat16, {64}, 1, Extent::kTile});
  for (int i = 0; i < 20; ++i) value = apply(builder, TileOp::kExp, {value});
  builder.store(value, 1, Storage::kBfloat16);
  CHECK(builder.build().scratch_bytes <= 2 * 2048 * 4);
}

TEST(rows_of_rows) {
  TileBuilder builder({{5}, 100, false});
  const auto x = builder.load(dense(0, 100));
  const auto [mean, variance] = builder.moments(apply(builder, TileOp::kAdd, {x, builder.load(row(1))}), 1);
  builder.store(mean, 2, Storage::kFloat);
  builder.store(variance, 3, Storage::kFloat);
  const TileProgram program = builder.build();
  std::vector<float> values = numbers(500);
  std::vector<float> added = {1, 2, 3, 4, 5};
  std::vector<float> means(5);
  std::vector<float> variances(5);
  char* arrays[] = {bytes(values), bytes(added), bytes(means), bytes(variances)};
  CHECK(run(program, arrays, &one_after_the_other));
  for (std::size_t r = 0; r < 5; ++r) {
    double sum = 0;
    for (std::size_t c = 0; c < 100; ++c) sum += values[100 * r + c];
    CHECK(std::abs(means[r] - (sum / 100 + added[r])) < 1e-5);
    double squares = 0;
    for (std::size_t c = 0; c < 100; ++c) squares += std::pow(values[100 * r + c] - sum / 100, 2);
    CHECK(std::abs(variances[r] - squares / 99) < 1e-4);
  }
}

}  // namespace thunder::executors::cpu
