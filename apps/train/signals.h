// Stopping a loop from outside: SIGTERM (schedulers), SIGINT (Ctrl-C) and SIGUSR1 (a job's last minutes) are noted, and
// the loop looks between two iterations whether it should write a checkpoint and leave.
#pragma once

#include <string>

namespace isobar {

// From now on the three signals are noted instead of ending the process; a second SIGINT ends it at once.
void install_stop_handlers();

bool stop_requested();

// "SIGTERM"; empty when none has come.
std::string stop_signal_name();

}  // namespace isobar
