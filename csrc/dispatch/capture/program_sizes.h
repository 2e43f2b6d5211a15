#pragma once

#include <Python.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compile/options.h"
#include "dispatch/call/size_history.h"
#include "dispatch/call/specialization.h"
#include "dispatch/call/trace_options.h"
#include "dispatch/capture/dynamic_arguments.h"
#include "dispatch/capture/number_inputs.h"
#include "dispatch/capture/torch_hooks.h"
#include "ir/condition.h"
#include "ir/trace.h"
#include "tracer/recorder.h"
#include "tracer/size_shadows.h"

namespace thunder::dispatch {

/// The sizes and numbers among the inputs of one trace in the making: which of them are symbols, what the trace was
/// found to need of them, and so which ones the next attempt is to have.
class ProgramSizes {
 public:
  struct KnownCondition {
    ir::Condition condition;
    std::string line;  ///< that decided on it
    friend bool operator==(const KnownCondition& left, const KnownCondition& right) {
      return left.condition == right.condition;
    }
  };
  /// Facts that a trace must know from its beginning, as earlier attempts found them.
  struct Known {
    PinnedSizes pinned{};                      ///< sizes of the arguments that are numbers, with the line
    std::vector<KnownCondition> conditions{};  ///< on sizes, which the program has decided on
    SizeHistory::Inputs changing{};            ///< inputs with sizes that are other ones than in earlier traces
    bool may_guess = true;                     ///< which other sizes are going to change
    std::set<std::string> constants{};         ///< numbers that change, and are constants all the same
    bool is_for_few_sizes = false;             ///< conditions left a symbol few values: what is pinned is for these
    std::set<SymbolSizes> apart{};             ///< sizes one of which something follows (`SizeSymbol::is_apart`)
    bool operator==(const Known&) const = default;
  };

  /// `hooks` tell which inputs the program reads.
  ProgramSizes(tracer::Recorder& recorder, TorchHooks& hooks, std::shared_ptr<NumberTrace> numbers,
               const interpreter::CallArguments& arguments, const TraceOptions& how, const Known& known);

  /// Notes the sizes of the inputs from now on. Records at other sizes too, where sizes of the arguments are symbols.
  void watch(const compile::Options& options, PyObject* module);
  /// Null where no size is a symbol.
  [[nodiscard]] tracer::SizeShadows* shadows() const { return shadows_.get(); }
  void pin_all() const;
  /// As `SizeShadows::pin_most`.
  void pin_most() const;

  /// Makes the recorded trace one for all sizes, if it is recorded at several. False: the program is to be traced again
  /// with other symbols, or other numbers among the inputs, and an exception is set.
  [[nodiscard]] bool settle(ir::Trace& trace);
  /// Sets the exception after which the program is traced again, with more sizes that are numbers.
  static void ask_for_another_attempt();
  /// The facts that this attempt found, for the next one.
  [[nodiscard]] Known known(const Known& before, bool failed) const;
  /// The trace is kept: later ones compare sizes with its inputs'.
  void remember() const;

  /// Whether the trace is for many sizes.
  [[nodiscard]] bool has_symbols() const { return has_symbols_; }
  /// Lets the sizes of an input that are symbols be others at each call.
  void free_sizes(PyObject* input, TensorGuard& guard) const;
  /// The strides that are symbols, in the order of the trace's inputs for them.
  [[nodiscard]] std::vector<Specialization::Stride> strides() const;
  /// The place of each symbol's size, by symbol: `x.shape[0]`.
  [[nodiscard]] std::vector<std::string> names_of_symbols() const;
  /// Says in words of people what there is of symbols and conditions.
  void describe(Specialization& specialization) const;

 private:
  using Symbols = std::vector<std::optional<std::uint32_t>>;

  /// Inputs whose sizes are other ones than in earlier traces.
  [[nodiscard]] SizeHistory::Inputs changing() const;
  /// Where all sizes are symbols, those that follow from data are from the first time on.
  void add_data_sizes(SizeHistory::Inputs& inputs) const;
  /// A size of an input, and as it was before, where that is another one.
  [[nodiscard]] std::optional<SymbolSizes> changes(const std::string& path, std::size_t dim, std::int64_t size) const;
  /// Sizes that follow from data have a history, as those of inputs.
  void note_data_sizes();
  /// The symbols of the sizes that an operation of the program gives, by its place among those that follow from data.
  [[nodiscard]] Symbols symbols_of_data(std::size_t place) const;
  /// The last line that decided on a condition which names the symbol.
  [[nodiscard]] std::string line_of_conditions(std::uint32_t symbol) const;
  [[nodiscard]] bool generalize(ir::Trace& trace);
  /// Where the sizes are, by symbol, that it stands for: `x.shape[0]`.
  [[nodiscard]] std::vector<std::vector<std::string>> places_of_symbols() const;

  tracer::Recorder& recorder_;
  TorchHooks& hooks_;
  PinnedSizes pinned_;
  std::vector<KnownCondition> conditions_;
  SizeHistory::Inputs changing_;
  bool may_guess_;
  bool is_for_few_sizes_;
  std::set<SymbolSizes> apart_;
  DynamicSizes how_;
  SizeHistory* history_;
  std::map<PyObject*, std::string> paths_;         ///< where inputs were found
  SizeHistory::Shapes shapes_;                     ///< by where inputs were found
  std::map<std::string, SizeHistory::Seen> seen_;  ///< tensors among them whose sizes may be guessed to change
  DynamicArguments dynamic_;
  NumberInputs number_inputs_;
  std::unique_ptr<tracer::SizeShadows> shadows_;
  mutable DataSizePaths data_paths_;
  bool has_symbols_ = false;
  bool wants_symbols_ = false;  ///< sizes are other ones than in earlier traces: they are to be symbols
};

/// Whether traces of a module with these options may have sizes that are symbols.
[[nodiscard]] bool can_have_symbols(const compile::Options& options, PyObject* module);

/// Inputs with sizes that are other ones than in earlier traces, as far as the guards of such a trace lead to them:
/// what is missing here is found by tracing.
[[nodiscard]] SizeHistory::Inputs find_changing(const Specialization& like, const interpreter::CallArguments& arguments,
                                                SizeHistory& history);
/// Sizes that change are numbers in all later traces.
void give_symbols_up(const SizeHistory::Inputs& changing, SizeHistory& history);

/// A condition with the sizes of the user's tensors in the place of symbols: `x.shape[0] <= 10`.
[[nodiscard]] std::string with_names(const std::string& text, const std::vector<std::string>& names);

}  // namespace thunder::dispatch
