// For tests: a GPU that fails or is stuck, on the emulator.
#pragma once

namespace isobar::emulator {

// Called whenever somebody asks whether work of a stream has come to a point, or waits for it, in the thread that does.
// What it returns is the sentence of an error, as of a GPU that has failed; null: none. It may take its time, as a GPU
// that is stuck does.
using Question = const char* (*)();
void set_question(Question question);  // null: nothing is called

}  // namespace isobar::emulator
