// For tests: a GPU that fails or is stuck, on the emulator.
#pragma once

namespace isobar::emulator {

// Called in every thread that asks whether the work of a stream has reached a point, or waits for it. It returns the
// sentence of an error, as for a GPU that has failed, or null: no error. It may take long, as a GPU that is stuck does.
using Question = const char* (*)();
void set_question(Question question);  // null: nothing is called

}  // namespace isobar::emulator
