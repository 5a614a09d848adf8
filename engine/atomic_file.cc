#include "engine/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {
namespace {

[[noreturn]] void fail_with_errno(const std::filesystem::path& path, const char* what) {
  fail(path.string(), ": cannot be ", what, ": ", std::strerror(errno));
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

void flush_to_disk(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_with_errno(path, "opened");
  // Some file systems cannot flush a folder (EINVAL) and need not.
  const bool flushed = ::fsync(descriptor) == 0 || errno == EINVAL;
  const int error = errno;
  ::close(descriptor);
  errno = error;
  if (!flushed) fail_with_errno(path, "flushed to the disk");
}

std::filesystem::path replaced_by_writing(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const fs::path target = fs::is_symlink(path) ? fs::weakly_canonical(path) : path;
  ISOBAR_CHECK(fs::is_directory(folder_of(target)), path.string(), ": there is no folder ", folder_of(target).string());
  ISOBAR_CHECK(!fs::is_directory(target), path.string(), " is a folder");
  ISOBAR_CHECK(!fs::exists(target) || fs::is_regular_file(target), path.string(), " is not a regular file");
  return target;
}

AtomicFile::AtomicFile(const std::filesystem::path& path)
    : path_(replaced_by_writing(path)), temporary_(folder_of(path_) / ("." + path_.filename().string() + ".writing")) {
  // The name is fixed, so that what a killed writer left is overwritten by the next.
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_with_errno(path_, "created");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  ISOBAR_CHECK(descriptor_ >= 0, path_.string(), ": written to after its commit");
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with_errno(path_, "written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::commit() {
  ISOBAR_CHECK(descriptor_ >= 0, path_.string(), ": committed twice");
  if (::fsync(descriptor_) != 0) fail_with_errno(path_, "flushed to the disk");
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_with_errno(path_, "closed");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_with_errno(path_, "put in place");
  temporary_.clear();
  flush_to_disk(folder_of(path_));
}

void write_file_atomically(const std::filesystem::path& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  file.commit();
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_with_errno(path, "opened");
  std::string contents;
  for (char piece[1 << 14]; file.read(piece, sizeof piece) || file.gcount() > 0;) {
    contents.append(piece, static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) fail_with_errno(path, "read");
  return contents;
}

}  // namespace isobar
