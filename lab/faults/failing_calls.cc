// A library to preload (LD_PRELOAD): counts a program's system calls about files, and makes one of them fail.
//
//   FAULT_AT=N       the call that fails, counted from 1; "all": every one; unset: none
//   FAULT_ERROR=E    its errno, a number; unset: one that this call may well meet
//   FAULT_SIGNAL=S   raises this signal before the call instead, and the call is made
//   FAULT_SECONDS=S  waits so long before the call instead, and the call is made
//   FAULT_CALL=NAME  counts only the calls of this name
//   FAULT_PATH=TEXT  counts only the calls about files whose path holds TEXT
//   FAULT_LOG=FILE   gets a line "N CALL PATH" for every call that is counted
//   FAULT_NEW_AT=N   the allocation (operator new) that fails, counted from 1; unset: none
//   FAULT_NEW_LOG=FILE  gets the number of allocations when the program ends
//
// What libc does for itself (the writes of stdio, the mmap of malloc) is not seen, nor are the standard streams.
// tests/apps/fault_resume.py, tests/apps/install.py and tests/apps/train_test.cc use it.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

struct Plan {
  const char* path = getenv("FAULT_PATH");
  bool all = is("FAULT_AT", "all");
  long at = number("FAULT_AT", 0);
  int error = static_cast<int>(number("FAULT_ERROR", 0));
  int signal = static_cast<int>(number("FAULT_SIGNAL", 0));
  unsigned seconds = static_cast<unsigned>(number("FAULT_SECONDS", 0));
  const char* call = getenv("FAULT_CALL");
  int log = open_log();

  static long number(const char* variable, long otherwise) {
    const char* value = getenv(variable);
    return value == nullptr ? otherwise : strtol(value, nullptr, 10);
  }
  static bool is(const char* variable, const char* text) {
    const char* value = getenv(variable);
    return value != nullptr && strcmp(value, text) == 0;
  }
  static int open_log() {
    const char* file = getenv("FAULT_LOG");
    constexpr int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    return file == nullptr ? -1 : static_cast<int>(syscall(SYS_openat, AT_FDCWD, file, flags, 0666));
  }
};

// Counts a call, and says whether it is to fail; errno is then set.
bool fails(const char* call, const char* path, int likely_error) {
  static const Plan plan;
  static std::atomic<long> calls = 0;
  if (path == nullptr || (plan.path != nullptr && strstr(path, plan.path) == nullptr)) return false;
  if (plan.call != nullptr && strcmp(plan.call, call) != 0) return false;
  const long number = ++calls;
  if (plan.log >= 0) {
    char line[PATH_MAX + 64];
    const int length = snprintf(line, sizeof line, "%ld %s %s\n", number, call, path);
    syscall(SYS_write, plan.log, line, length);
  }
  if (!plan.all && number != plan.at) return false;
  if (plan.signal != 0) {
    raise(plan.signal);
    return false;
  }
  if (plan.seconds != 0) {
    sleep(plan.seconds);
    return false;
  }
  errno = plan.error != 0 ? plan.error : likely_error;
  return true;
}

// The path of an open file; null for the standard streams.
class PathOf {
 public:
  explicit PathOf(int descriptor) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t length = descriptor <= STDERR_FILENO ? -1 : ::readlink(link, path_, sizeof path_ - 1);
    path_[length < 0 ? 0 : length] = '\0';
    known_ = length >= 0;
  }
  operator const char*() const { return known_ ? path_ : nullptr; }

 private:
  char path_[PATH_MAX];
  bool known_;
};

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

template <class Result>
Result failure() {
  return static_cast<Result>(-1);
}
template <>
FILE* failure() {
  return nullptr;
}
template <>
DIR* failure() {
  return nullptr;
}
template <>
void* failure() {
  return MAP_FAILED;
}

}  // namespace

// Defines a function of libc that asks fails() first. path: an expression of its parameters.
#define FAULT_WRAP(Result, name, parameters, noexcept_or_not, arguments, path, error) \
  extern "C" Result name parameters noexcept_or_not {                                 \
    static auto* const real = next<Result parameters>(#name);                         \
    if (fails(#name, path, error)) return failure<Result>();                          \
    return real arguments;                                                            \
  }

FAULT_WRAP(ssize_t, read, (int d, void* to, size_t n), , (d, to, n), PathOf(d), EIO)
FAULT_WRAP(ssize_t, pread, (int d, void* to, size_t n, off_t at), , (d, to, n, at), PathOf(d), EIO)
FAULT_WRAP(ssize_t, pread64, (int d, void* to, size_t n, off64_t at), , (d, to, n, at), PathOf(d), EIO)
FAULT_WRAP(ssize_t, write, (int d, const void* from, size_t n), , (d, from, n), PathOf(d), ENOSPC)
FAULT_WRAP(ssize_t, pwrite, (int d, const void* from, size_t n, off_t at), , (d, from, n, at), PathOf(d), ENOSPC)
FAULT_WRAP(ssize_t, pwrite64, (int d, const void* from, size_t n, off64_t at), , (d, from, n, at), PathOf(d), ENOSPC)
FAULT_WRAP(int, fsync, (int d), , (d), PathOf(d), EIO)
FAULT_WRAP(int, fdatasync, (int d), , (d), PathOf(d), EIO)
FAULT_WRAP(int, flock, (int d, int how), __THROW, (d, how), PathOf(d), EINTR)
FAULT_WRAP(int, fstat, (int d, struct stat* to), __THROW, (d, to), PathOf(d), EIO)
FAULT_WRAP(int, ftruncate, (int d, off_t n), __THROW, (d, n), PathOf(d), EIO)
FAULT_WRAP(int, ftruncate64, (int d, off64_t n), __THROW, (d, n), PathOf(d), EIO)
FAULT_WRAP(off_t, lseek, (int d, off_t n, int from), __THROW, (d, n, from), PathOf(d), EIO)
FAULT_WRAP(off64_t, lseek64, (int d, off64_t n, int from), __THROW, (d, n, from), PathOf(d), EIO)
FAULT_WRAP(void*, mmap, (void* a, size_t n, int p, int f, int d, off_t at), __THROW, (a, n, p, f, d, at), PathOf(d),
           ENOMEM)
FAULT_WRAP(void*, mmap64, (void* a, size_t n, int p, int f, int d, off64_t at), __THROW, (a, n, p, f, d, at), PathOf(d),
           ENOMEM)
FAULT_WRAP(DIR*, opendir, (const char* path), , (path), path, EMFILE)
FAULT_WRAP(DIR*, fdopendir, (int d), , (d), PathOf(d), ENOMEM)
FAULT_WRAP(FILE*, fopen, (const char* path, const char* mode), , (path, mode), path, EMFILE)
FAULT_WRAP(FILE*, fopen64, (const char* path, const char* mode), , (path, mode), path, EMFILE)
FAULT_WRAP(int, stat, (const char* path, struct stat* to), __THROW, (path, to), path, EIO)
FAULT_WRAP(int, lstat, (const char* path, struct stat* to), __THROW, (path, to), path, EIO)
FAULT_WRAP(int, mkdir, (const char* path, mode_t mode), __THROW, (path, mode), path, ENOSPC)
FAULT_WRAP(int, rename, (const char* from, const char* to), __THROW, (from, to), from, EIO)
FAULT_WRAP(int, unlink, (const char* path), __THROW, (path), path, EIO)
FAULT_WRAP(int, rmdir, (const char* path), __THROW, (path), path, EIO)
FAULT_WRAP(int, remove, (const char* path), __THROW, (path), path, EIO)
FAULT_WRAP(int, unlinkat, (int d, const char* path, int how), __THROW, (d, path, how), path, EIO)
FAULT_WRAP(int, renameat2, (int a, const char* from, int b, const char* to, unsigned how), __THROW,
           (a, from, b, to, how), from, EIO)

// A file is closed even where close() fails.
extern "C" int close(int descriptor) {
  static auto* const real = next<int(int)>("close");
  const bool failed = fails("close", PathOf(descriptor), EIO);
  const int error = errno;
  const int result = real(descriptor);
  if (!failed) return result;
  errno = error;
  return -1;
}

namespace {

int opened(const char* name, int folder, const char* path, int flags, mode_t mode) {
  if (fails(name, path, (flags & O_CREAT) != 0 ? ENOSPC : EMFILE)) return -1;
  return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

mode_t mode_in(va_list arguments, int flags) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

// open() and its likes take a mode where they create a file.
#define FAULT_OPEN(name, parameters, folder)         \
  extern "C" int name parameters {                   \
    va_list arguments;                               \
    va_start(arguments, flags);                      \
    const mode_t mode = mode_in(arguments, flags);   \
    va_end(arguments);                               \
    return opened(#name, folder, path, flags, mode); \
  }

FAULT_OPEN(open, (const char* path, int flags, ...), AT_FDCWD)
FAULT_OPEN(open64, (const char* path, int flags, ...), AT_FDCWD)
FAULT_OPEN(openat, (int folder, const char* path, int flags, ...), folder)
FAULT_OPEN(openat64, (int folder, const char* path, int flags, ...), folder)

namespace {

std::atomic<long> allocations = 0;

__attribute__((destructor)) void log_allocations() {
  const char* file = getenv("FAULT_NEW_LOG");
  if (file == nullptr) return;
  const int log = static_cast<int>(syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_TRUNC, 0666));
  char text[32];
  syscall(SYS_write, log, text, snprintf(text, sizeof text, "%ld\n", allocations.load()));
}

}  // namespace

// libstdc++'s other forms of new and delete go through this one and free().
void* operator new(std::size_t size) {
  static const long at = Plan::number("FAULT_NEW_AT", 0);
  void* memory = ++allocations == at ? nullptr : malloc(size);
  if (memory != nullptr) return memory;
  if (const std::new_handler handler = std::get_new_handler()) handler();
  throw std::bad_alloc();
}
