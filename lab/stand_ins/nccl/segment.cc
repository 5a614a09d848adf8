#include "lab/stand_ins/nccl/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>
#include <fstream>

namespace isobar::nccl::stand_in {
namespace {

constexpr std::size_t kHeader = 4096;
static_assert(sizeof(Header) <= kHeader && std::atomic<std::uint64_t>::is_always_lock_free);

std::size_t bytes_for(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return kHeader + n * sizeof(RankSlot) + n * n * sizeof(PairSlot);
}

int open_file(const std::string& path, std::size_t bytes) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) refuse(kSystemError, path, " cannot be opened: ", std::strerror(errno));
  struct stat status {};
  ::fstat(file, &status);  // never shrinks: another rank may have extended it
  const auto size = std::max<off_t>(status.st_size, static_cast<off_t>(bytes));
  if (::ftruncate(file, size) != 0) refuse(kSystemError, path, " cannot be made long enough: ", std::strerror(errno));
  return file;
}

}  // namespace

Segment::Segment(std::uint64_t id, int ranks) : ranks_(ranks), bytes_(bytes_for(ranks)) {
  char name[64];
  std::snprintf(name, sizeof name, "/dev/shm/isobar-nccl-%016llx", static_cast<unsigned long long>(id));
  path_ = name;
  const int file = open_file(path_, bytes_);
  void* base = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (base == MAP_FAILED) refuse(kSystemError, path_, " cannot be mapped: ", std::strerror(errno));
  base_ = static_cast<std::byte*>(base);
  std::uint32_t of_others = 0;
  if (!header().ranks.compare_exchange_strong(of_others, static_cast<std::uint32_t>(ranks)) &&
      of_others != static_cast<std::uint32_t>(ranks)) {
    const std::string sentence = concat("one rank was told of ", of_others, " ranks, another of ", ranks);
    fail(sentence);
    ::munmap(base_, bytes_);
    refuse(kInvalidArgument, sentence);
  }
}

Segment::~Segment() {
  ::munmap(base_, bytes_);
}

RankSlot& Segment::rank(int r) const {
  return reinterpret_cast<RankSlot*>(base_ + kHeader)[r];
}

PairSlot& Segment::pair(int from, int to) const {
  auto* pairs = reinterpret_cast<PairSlot*>(base_ + kHeader + static_cast<std::size_t>(ranks_) * sizeof(RankSlot));
  return pairs[from * ranks_ + to];
}

void Segment::fail(const std::string& sentence) const {
  std::uint32_t none = 0;
  if (!header().failed.compare_exchange_strong(none, 1)) return;
  const std::size_t length = std::min(sentence.size(), sizeof(Header::failure) - 1);
  std::memcpy(header().failure, sentence.data(), length);
  header().failure[length] = '\0';
  header().failed = 2;
  if (header().ranks == static_cast<std::uint32_t>(ranks_)) ring_all();
}

void Segment::ring(int r) const {
  RankSlot& slot = rank(r);
  ++slot.bell;
  if (slot.sleepers > 0) ::syscall(SYS_futex, &slot.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Segment::ring_all() const {
  for (int r = 0; r < ranks_; ++r) ring(r);
}

void Segment::sleep(int r, std::uint32_t seen) const {
  RankSlot& slot = rank(r);
  const timespec limit{0, 20'000'000};
  ++slot.sleepers;
  ::syscall(SYS_futex, &slot.bell, FUTEX_WAIT, seen, &limit, nullptr, 0);
  --slot.sleepers;
}

void Segment::remove_name() const noexcept {
  ::unlink(path_.c_str());
}

namespace {

// Fields 3 (state) and 22 (start time) of /proc/PID/stat; the name in field 2 may contain anything and ends with ")".
bool read_status(std::int32_t process, char& state, std::uint64_t& start_time) {
  std::ifstream in(concat("/proc/", process, "/stat"));
  std::string text;
  if (!std::getline(in, text)) return false;
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos) return false;
  std::istringstream fields(text.substr(end + 1));
  std::string skipped;
  fields >> state;
  for (int i = 4; i < 22; ++i) fields >> skipped;
  return static_cast<bool>(fields >> start_time);
}

}  // namespace

bool is_alive(std::int32_t process, std::uint64_t start_time) {
  char state = 'X';
  std::uint64_t started = 0;
  return read_status(process, state, started) && state != 'Z' && state != 'X' && started == start_time;
}

std::uint64_t start_time_of(std::int32_t process) {
  char state = 'X';
  std::uint64_t started = 0;
  return read_status(process, state, started) ? started : 0;
}

}  // namespace isobar::nccl::stand_in
