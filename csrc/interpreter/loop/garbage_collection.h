#pragma once

namespace thunder::interpreter {

// What the garbage collector runs (finalizers and weak references' callbacks of objects that may be anybody's, others'
// `gc.callbacks`) is no part of the program that it interrupts: it runs natively, and no observer hears of it. What
// dies by its count of references does belong to the program.

/// 0 or -1 with an exception; before the others.
int prepare_garbage_collection();
/// From here on, collections suspend the interpretation of the thread that they run on. Once at a time.
void watch_collections();
void unwatch_collections();

}  // namespace thunder::interpreter
