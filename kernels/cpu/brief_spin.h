// Whether waiting threads may spin (kernels/cpu/brief_spin.cc).
#pragma once

namespace isobar::cpu {

// Whether, by the text of /proc/loadavg, more than `cpus` threads want to run, counting `threads` threads of this
// process. The text counts one of them already, which runs now. False if the text does not say it.
bool is_too_busy_to_spin(const char* loadavg, long threads, long cpus);

}  // namespace isobar::cpu
