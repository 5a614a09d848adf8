#include "data/text/scratch_numbers.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::size_t kPending = 1 << 15;

// Some file systems make files without names; elsewhere the name is removed at once.
int nameless_file(const std::filesystem::path& folder) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0) return file;
  std::string name = (folder / ".numbers.XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

}  // namespace

ScratchNumbers::ScratchNumbers(const std::filesystem::path& folder) : folder_(folder), file_(nameless_file(folder)) {
  ISOBAR_CHECK(file_, folder_.string(), ": no file can be made there: ", std::strerror(errno));
  pending_.reserve(kPending);
}

void ScratchNumbers::append(std::int64_t number) {
  pending_.push_back(number);
  ++count_;
  if (pending_.size() == kPending) flush();
}

void ScratchNumbers::flush() {
  std::span<const std::byte> bytes = std::as_bytes(std::span(pending_));
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(written_));
    if (written < 0 && errno == EINTR) continue;
    ISOBAR_CHECK(written >= 0, folder_.string(), ": a temporary file cannot be written: ", std::strerror(errno));
    written_ += written;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  pending_.clear();
}

void ScratchNumbers::for_each_piece(const std::function<void(std::span<const std::int64_t>)>& take) {
  flush();
  std::vector<std::int64_t> piece(kPending);
  for (std::int64_t first = 0; first < count_; first += static_cast<std::int64_t>(kPending)) {
    const auto numbers =
        std::span(piece).first(static_cast<std::size_t>(std::min<std::int64_t>(kPending, count_ - first)));
    std::span<std::byte> bytes = std::as_writable_bytes(numbers);
    auto offset = static_cast<off_t>(first) * static_cast<off_t>(sizeof(std::int64_t));
    while (!bytes.empty()) {
      const ssize_t got = ::pread(file_.get(), bytes.data(), bytes.size(), offset);
      if (got < 0 && errno == EINTR) continue;
      ISOBAR_CHECK(got > 0, folder_.string(), ": a temporary file cannot be read");
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      offset += got;
    }
    take(numbers);
  }
}

}  // namespace isobar
