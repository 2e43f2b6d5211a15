#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <span>
#include <vector>

namespace thunder::tracer {

class Recorder;

/// Operations whose own code reads data: how they are recorded instead. Arguments on the stack become results.

/// Records an operator whose result is a number, or a truth value, that the program looks at.
void call_reading_number(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// Records a custom operator whose results are numbers, too. Without tensors among its arguments they follow from no
/// data.
void call_giving_numbers(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// Records an operator whose own code reads lengths; the trace holds for these. False: it is another one.
[[nodiscard]] bool call_reading_lengths(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// Records a call of the program with a look whether it fails, and raises the error if it does now. False: errors are
/// not observed (observed_errors.h), or this operation has no part that tells whether it fails.
[[nodiscard]] bool call_observing_errors(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// Writes to the places that a mask shows (`index_put`).
[[nodiscard]] bool writes_by_mask(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
/// Records `index_put` with masks. One number everywhere that the only mask shows is `masked_fill`; otherwise masks
/// become positions, whose number follows from data.
void call_writing_by_mask(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// Reads the places that masks show (`index`): masks become positions, whose number follows from data.
[[nodiscard]] bool reads_by_mask(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
void call_reading_by_mask(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// A composite of which only one part gives sizes that follow from data: the others are recorded as any operation.
[[nodiscard]] bool is_made_of_positions(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

/// `_pack_padded_sequence` and `_pad_packed_sequence`, by operations on the sequences' steps: the trace holds for these
/// lengths.
void pack_sequences(Recorder& recorder, std::vector<c10::IValue> arguments, torch::jit::Stack& stack);
void pad_sequences(Recorder& recorder, std::vector<c10::IValue> arguments, torch::jit::Stack& stack);

}  // namespace thunder::tracer
