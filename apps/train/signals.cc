#include "apps/train/signals.h"

#include <atomic>
#include <csignal>

namespace isobar {

namespace {

// Written by the handler in any thread; read by every rank.
std::atomic<int> noted_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

void note(int signal) {
  noted_signal = signal;
}

void install(int signal, int flags) {
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void install_stop_handlers() {
  install(SIGTERM, 0);
  install(SIGUSR1, 0);
  install(SIGINT, static_cast<int>(SA_RESETHAND));
}

bool stop_requested() {
  return noted_signal != 0;
}

std::string stop_signal_name() {
  switch (noted_signal) {
    case 0:
      return "";
    case SIGINT:
      return "SIGINT";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return "SIGTERM";
  }
}

}  // namespace isobar
