#include "kernels/common/notices.h"

#include <iostream>
#include <mutex>
#include <set>
#include <utility>

namespace isobar {
namespace {

struct Notices {
  std::mutex mutex;
  std::set<std::string> given;
  std::vector<std::string> waiting;
  bool are_taken = false;
};

Notices& notices() {
  static Notices instance;
  return instance;
}

}  // namespace

void notice(const std::string& sentence) {
  const std::lock_guard lock(notices().mutex);
  if (!notices().given.insert(sentence).second) return;
  if (notices().are_taken)
    notices().waiting.push_back(sentence);
  else
    std::cerr << "isobar: " << sentence << std::endl;
}

std::vector<std::string> take_notices() {
  const std::lock_guard lock(notices().mutex);
  notices().are_taken = true;
  return std::exchange(notices().waiting, {});
}

}  // namespace isobar
