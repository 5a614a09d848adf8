// Whether threads that wait may spin (kernels/cpu/brief_spin.cc).
#pragma once

namespace isobar::cpu {

// Whether the text of /proc/loadavg says that more threads want to run than `cpus` when `threads` of this process do,
// too. Of these one runs so far, and is counted there. False where the text does not say it.
bool is_too_busy_to_spin(const char* loadavg, long threads, long cpus);

}  // namespace isobar::cpu
