#pragma once

namespace thunder::interpreter {

// Code that the garbage collector runs (finalizers and weak references' callbacks of any objects, others'
// `gc.callbacks`) is no part of the program that it interrupts: it runs natively, and no observer hears of it.
// Finalizers that run because a reference count falls to zero do belong to the program.

/// To be called before the others; 0 or -1 with an exception.
int prepare_garbage_collection();
/// From here on, collections suspend the interpretation of the thread that they run on. Once at a time.
void watch_collections();
void unwatch_collections();

}  // namespace thunder::interpreter
