// Stopping a loop from outside. SIGTERM (schedulers), SIGINT (Ctrl-C) and SIGUSR1 (the time limit of a job is near) set
// a flag. Between two iterations the loop reads it, writes a checkpoint and leaves.
#pragma once

#include <string>

namespace isobar {

// From now on the three signals set the flag instead of ending the process; a second SIGINT ends it at once.
void install_stop_handlers();

// The exit status of a command that was stopped and is to be run again (EX_TEMPFAIL).
inline constexpr int kStoppedStatus = 75;

bool stop_requested();

// "SIGTERM"; empty if no signal has arrived.
std::string stop_signal_name();

}  // namespace isobar
