#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ir/trace.h"

namespace thunder::operators {

/// Facts about an operator that neither its schema nor its tags in PyTorch's dispatcher tell.
enum class Fact : std::uint8_t {
  // Random numbers, errors, cost
  kDrawsRandomNumbers,  ///< from a generator that is no parameter
  kRaisesForData,       ///< for what tensors hold, not only for their sizes and dtypes
  kChoosesByIndex,      ///< raises for indices that tensors hold: on a GPU a kernel stops there, and raises nothing
  kCallsPyTorch,        ///< is ours, and calls operations of PyTorch that raise nothing for data
  kRaisesForZero,       ///< for a divisor of zero, of integers
  kRaisesForNegative,   ///< for a negative number as its second operand, of integers
  kIsUnknown,           ///< code that is not PyTorch's: it may draw random numbers, count, or keep something
  kWrapsNumbers,        ///< takes Python's numbers as tensors, so that no dtype must hold them
  kIsCheap,             ///< a few passes over the data: recomputed rather than kept
  kReadsFromMemory,     ///< a kernel of a library reads its operands: no fusion computes them on the way

  // Memory
  kMayReturnArgument,  ///< a result may be the memory of an argument
  kIsUnsafeView,       ///< a view, of which the schema says nothing
  kIsUninitialized,    ///< gives memory that nothing was written to
  kHasNoMemory,        ///< gives zeros without memory, which nobody can read
  kReadsStrides,       ///< its result depends on the strides of its first argument
  kReadsInOrder,       ///< its kernel takes memory to lie in order, and looks at no strides
  kRaisesForStrides,   ///< a view that not all strides allow
  kOtherStrides,       ///< results may have other strides than its meta kernel says

  // Writes
  kCopies,           ///< gives the first argument what the second one holds
  kOverwrites,       ///< writes to the first argument, and nothing of it is left
  kWritesToIndices,  ///< `index_put` and its like: (self, indices, values, accumulate)
  kTurns,            ///< gives the first argument other sizes and strides over the same memory
  kResizes,          ///< changes how many elements the first argument has
  kReplacesStorage,  ///< gives the first argument another memory
  kKeepsShapeOfOut,  ///< its `out=` of as many elements keeps its shape

  // Autograd, conjugates, and other kinds of tensors
  kDetaches,                ///< no gradient flows through it
  kMayConjugate,            ///< its result may be conjugate by a bit, which its meta kernel does not say
  kNeedsResolvedConjugate,  ///< raises for what is conjugate by a bit
  kResolvesConjugate,
  kResolvesNegative,
  kWrapsTensors,  ///< makes, or takes apart, dual tensors of forward mode or batches of vmap
  kCastsInside,   ///< autocast casts within its own code

  // Data and metadata
  kReadsData,         ///< gives the program a number that data decides
  kShapeFollowsData,  ///< a result's shape depends on data, unless arguments give it
  kTestsEquality,     ///< element by element, to the last bit
  kAsksAboutTensor,   ///< about the object: a trace tensor would give an answer of its own
  kReadsMetadata,     ///< and nothing else: its kernel may see trace tensors
  kMixesDevices,      ///< its tensors may lie on different devices
  kReadsGradMode,     ///< its kernel leaves out what its derivative reads where no gradients are recorded

  // Structure
  kIsRecordedAsParts,  ///< by what its kernel for all devices calls
  kIsConvolution,      ///< (input, weight, bias, …)
  kIsAttention,        ///< (query, key, value, mask, dropout, is_causal, …)
  kIsBatchNorm,        ///< (input, weight, bias, [running_mean, running_var,] training, momentum, eps)

  // Processes that work together
  kOrdered,       ///< all processes run such operations in one order: none is left out, none passes another
  kAsynchronous,  ///< its arguments and results are in use until somebody waits for a result
  kWaits,         ///< for the asynchronous operation that gave its argument, which it returns
};

class FactSet {
 public:
  constexpr FactSet() = default;
  constexpr FactSet(Fact fact) : bits_(std::uint64_t{1} << static_cast<unsigned>(fact)) {}  // NOLINT: a set of one
  constexpr explicit FactSet(std::uint64_t bits) : bits_(bits) {}

  [[nodiscard]] constexpr bool has(Fact fact) const { return (bits_ & FactSet(fact).bits_) != 0; }
  [[nodiscard]] constexpr bool has_any(FactSet facts) const { return (bits_ & facts.bits_) != 0; }
  [[nodiscard]] constexpr std::uint64_t bits() const { return bits_; }
  friend constexpr FactSet operator|(FactSet a, FactSet b) { return FactSet(a.bits_ | b.bits_); }

 private:
  std::uint64_t bits_ = 0;
};
constexpr FactSet operator|(Fact a, Fact b) { return FactSet(a) | FactSet(b); }

/// Looked up once for each operator, and kept by it.
[[nodiscard]] FactSet facts_of(const ir::Operator& op);
[[nodiscard]] inline bool has_fact(const ir::Operator& op, Fact fact) { return facts_of(op).has(fact); }
/// Adds what PyTorch's dispatcher says, when the operator's row is made.
void add_facts(ir::Operator& op, FactSet facts);
/// The operator's author says whether it draws random numbers, and that it does nothing else unseen.
void note_declared(const ir::Operator& op);

/// Whether its results are views of arguments, by its schema or not.
[[nodiscard]] inline bool is_view(const ir::Operator& op) { return op.view || has_fact(op, Fact::kIsUnsafeView); }

/// Whether an operation communicates with other processes. Such operations stay in their order. Operations that run
/// while an asynchronous one is under way hide its time, and so move neither in front of it nor behind the wait for it.
[[nodiscard]] inline bool communicates(const ir::Operator& op) {
  return facts_of(op).has_any(Fact::kOrdered | Fact::kAsynchronous | Fact::kWaits);
}

/// Whether an operation may draw random numbers.
[[nodiscard]] inline bool may_draw(const ir::Operator& op) { return op.random || has_fact(op, Fact::kIsUnknown); }

/// Whether an operation may do something besides giving its results: it runs once, and where it stands among its like.
[[nodiscard]] inline bool may_have_effects(const ir::Operator& op) {
  return may_draw(op) || op.mutates || op.effect || communicates(op);
}

/// Whether an operation may raise an error that depends on the data of its arguments: `linalg.inv`, an index out of
/// bounds, integers divided by zero, or on the size of the memory behind them (`as_strided`).
[[nodiscard]] bool may_raise_for_data(const ir::Trace& trace, const ir::BoundSymbol& symbol);

/// The operator that computes the same into memory that it is given. It reads each element of its first parameters, and
/// what of its row it needs besides, before it writes it: so the memory may be one of theirs.
struct InPlaceForm {
  const ir::Operator* op = nullptr;  ///< null: there is none
  bool is_out = false;               ///< the memory is one more argument, at the end; else it is the first one
  std::size_t candidates = 1;        ///< which of the first arguments may give their memory
};
[[nodiscard]] InPlaceForm in_place_form(const ir::Operator& op, ir::FindOperator find_operator);

/// The operator that gives a view's elements whatever the strides, and with memory of their own where it must; null:
/// the operator is no view that needs one.
[[nodiscard]] const char* copying_form(const ir::Operator& op);

/// Where an operator that multiplies matrices has its arguments.
struct Matmul {
  std::size_t left = 0;  ///< its last dimension is summed over
  std::size_t right = 1;
  std::optional<std::size_t> bias{};
  std::size_t factors = 0;        ///< from here on: of the bias and of the matmul; 0: there are none
  bool takes_transposed = false;  ///< `right` has a row for each column of the result
  bool is_batched = false;        ///< three dimensions, never two
};
/// Null: the operator is no matmul.
[[nodiscard]] const Matmul* find_matmul(const ir::Operator& op);

}  // namespace thunder::operators
