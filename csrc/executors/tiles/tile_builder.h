#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "executors/tiles/tile_program.h"

namespace thunder::executors::cpu {

/// The box that a program runs over: `outer` sizes are the rows, the rest of the elements the columns.
struct TileDomain {
  std::vector<std::int64_t> outer;
  std::int64_t columns = 1;
  bool splits_columns = false;  ///< nothing is reduced: columns need not stay together
  /// An array that lies as the domain does has so many columns of all rows, then the next ones; 0: complete rows.
  std::int64_t run = 0;
  std::int64_t blocks = 1;  ///< that the rows are cut into, for column sums of each
  /// Rows of a block are interleaved: an array that lies as the domain does has their first elements, then the second
  /// ones. So does a tile.
  bool interleaved = false;

  [[nodiscard]] std::int64_t rows() const {
    std::int64_t count = 1;
    for (const std::int64_t size : outer) count *= size;
    return count;
  }
};

/// Puts a TileProgram together out of values: orders them into phases, so that each phase needs of earlier ones what
/// they reduced and rows that stay in scratch memory, and assigns registers.
class TileBuilder {
 public:
  enum class Value : std::uint32_t {};

  explicit TileBuilder(TileDomain domain) : domain_(std::move(domain)) {}

  Value load(Access access);
  /// For each row that one of a table which `rows` chooses.
  Value gather(Access table, Value rows);
  /// The array that the access's parts make together, and elsewhere a constant; nullopt: there is no elsewhere.
  Value assemble(Access access, std::optional<Value> fill);
  Value constant(ComputeType compute_type, double value);
  Value integer(std::int64_t value);
  /// One operation; nullopt: no kernel has it for these compute types.
  std::optional<Value> element(TileOp op, std::span<const Value> arguments);
  Value convert(Value value, ComputeType compute_type);
  /// A value of rows, or a constant, as a tile.
  Value expand(Value value);
  /// A constant as a value of rows.
  Value expand_rows(Value value);
  Value reduce(ReduceOp op, Value value);
  /// Mean and variance of each row; the variance is divided by the columns less `correction`.
  std::pair<Value, Value> moments(Value value, double correction);
  Value pick(Value value, Value columns);
  Value scatter_add(Value value, Value columns, Value added);

  /// Writes a value to an array that lies as the domain, or its rows, do.
  void store(Value value, std::uint32_t array, Storage storage);
  /// Writes a value to an array where rows may lie apart.
  void store(Value value, Access access);
  /// The sums of columns over all rows, or for each of the domain's blocks.
  void column_sum(Value value, std::uint32_t array, Storage storage, double scale, std::int64_t blocks = 1);
  /// Mean and variance of each column, of all rows or for each block; the variance is that of a population times
  /// `scale`. nullopt: the value is not needed.
  void column_moments(Value value, std::optional<std::uint32_t> mean, std::optional<std::uint32_t> variance,
                      Storage storage, double scale, std::int64_t blocks);
  /// The sum of all elements; it goes to an array, divided by total `divisor` if that is given. Returns its number.
  std::uint32_t total(Value value, std::optional<std::uint32_t> array, Storage storage, double scale,
                      std::optional<std::uint32_t> divisor);

  /// Arrays `input` and `output` may be the same memory, if the program turns out so that it `overwrites_inputs`.
  void overwrite(std::uint32_t input, std::uint32_t output) { overwritten_.push_back({input, output}); }

  [[nodiscard]] ComputeType compute_type(Value value) const { return node(value).compute_type; }
  [[nodiscard]] Extent extent(Value value) const { return node(value).extent; }

  [[nodiscard]] TileProgram build();

 private:
  using Kind = Instruction::Kind;
  static constexpr std::uint32_t kNone = 0xffffffffU;

  struct Node {
    Kind kind = Kind::kElement;
    bool is_constant = false;
    TileOp op = TileOp::kCopy;
    ReduceOp reduce_op = ReduceOp::kSum;
    ComputeType compute_type = ComputeType::kFloat;
    Extent extent = Extent::kTile;
    std::uint32_t arguments[3] = {kNone, kNone, kNone};
    std::uint32_t index = kNone;  ///< position of an access or a sum
    std::uint32_t pair = kNone;   ///< the variance of a mean
    double number = 0;            ///< value of a constant; the correction of moments
    ElementKernel kernel = nullptr;
    std::int32_t phase = 0;  ///< a tile's; of rows the phase at whose end they are known, -1: before the first

    /// Its instruction is one of a phase's tiles, not of what there is one of for each row.
    [[nodiscard]] bool works_on_tiles() const {
      return extent == Extent::kTile || kind == Kind::kReduce || kind == Kind::kMoments || kind == Kind::kPick;
    }
    friend bool operator==(const Node&, const Node&) = default;
  };
  struct Plan;
  struct Pairs;
  using Readers = std::vector<std::vector<std::uint32_t>>;  ///< by node
  /// Makes one operation of two where nobody else reads what the first gives.
  void join_pairs(const Readers& readers);

  [[nodiscard]] const Node& node(Value value) const { return nodes_[static_cast<std::uint32_t>(value)]; }
  /// In the first phase that knows the arguments.
  [[nodiscard]] Node make_node(Kind kind, ComputeType compute_type, Extent extent,
                               std::span<const Value> arguments) const;
  Value add(Node node);
  Value copy(Value value, Extent extent);
  /// A bit for each argument that is one element for all that a kernel is called for.
  [[nodiscard]] unsigned scalars_of(std::span<const Extent> arguments, Extent result) const;
  Value fold(const Node& made, std::span<const Value> arguments);
  /// The place of an access, which is added if it is new.
  std::uint32_t place_of(Access access);
  [[nodiscard]] static double slot_of(const Node& node);
  /// An array that lies as the domain does.
  [[nodiscard]] Access dense_access(std::uint32_t array, Storage storage) const;
  [[nodiscard]] bool is_dense(const Access& access) const;
  /// How far apart in memory the rows of neighbouring blocks are, where all of a block are the same one.
  [[nodiscard]] std::optional<std::int64_t> block_stride(const Access& access) const;

  TileDomain domain_;
  std::vector<Node> nodes_;
  std::vector<Access> accesses_;
  std::vector<Sum> column_sums_;
  std::vector<Sum> totals_;
  struct Overwritten {
    std::uint32_t input;
    std::uint32_t output;
  };
  std::vector<Overwritten> overwritten_;
};

}  // namespace thunder::executors::cpu
