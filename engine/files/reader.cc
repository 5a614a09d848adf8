#include "engine/files/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/common/check.h"

namespace isobar {

FileReader::FileReader(const std::filesystem::path& path, std::string name)
    : name_(name.empty() ? path.string() + ":" : std::move(name)),
      // Without O_NONBLOCK, opening a pipe would wait for its writer.
      descriptor_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  ISOBAR_CHECK(descriptor_, name_, " cannot be opened: ", std::strerror(errno));
  struct stat status {};
  ISOBAR_CHECK(::fstat(descriptor_.get(), &status) == 0 && S_ISREG(status.st_mode), name_,
               " is not a file but a folder, a pipe or a device");
  size_ = static_cast<std::size_t>(status.st_size);
}

std::size_t FileReader::read_up_to_end(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const ssize_t got =
        ::pread(descriptor_.get(), out.data() + filled, out.size() - filled, static_cast<off_t>(offset + filled));
    if (got < 0 && errno == EINTR) continue;
    ISOBAR_CHECK(got >= 0, name_, " cannot be read: ", std::strerror(errno));
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

void FileReader::read(std::uint64_t offset, std::span<std::byte> out, const char* ends) const {
  ISOBAR_CHECK(read_up_to_end(offset, out) == out.size(), name_, ' ', ends);
}

void read_file_in_pieces(const std::filesystem::path& path,
                         const std::function<void(std::span<const std::byte> piece)>& take) {
  std::vector<std::byte> piece(std::size_t{1} << 18);
  const FileReader file(path);
  std::uint64_t offset = 0;
  for (std::size_t got = piece.size(); got == piece.size(); offset += got) {
    got = file.read_up_to_end(offset, piece);
    if (got > 0) take(std::span(piece).first(got));
  }
}

std::string read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  std::string contents;
  read_file_in_pieces(path, [&](std::span<const std::byte> piece) {
    contents.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    ISOBAR_CHECK(contents.size() <= max_bytes, path.string(), ": has more than ", max_bytes,
                 " bytes, too many for what it should be");
  });
  return contents;
}

}  // namespace isobar
