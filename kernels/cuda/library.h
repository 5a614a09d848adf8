// NVIDIA's libraries, loaded at first use: a build with CUDA also starts on a machine without them.
#pragma once

#include <string>

#include "kernels/common/check.h"

namespace isobar::gpu {

class Library {
 public:
  // `file` is the name for the loader, "libcublasLt.so.13". It is searched in $ISOBAR_CUDA_LIBS (a folder), by the
  // loader itself, in ../lib beside the program, in NVIDIA's Python packages ($VIRTUAL_ENV, the user's, the system's),
  // in $CUDA_HOME/lib64 and in /usr/local/cuda/lib64. Throws Error if it is in none of them.
  explicit Library(const std::string& file);

  // The function of that name: library.get<decltype(&cublasLtCreate)>("cublasLtCreate").
  template <class Function>
  Function get(const char* name) const {
    return reinterpret_cast<Function>(symbol(name));
  }
  // The same, or null if the library has no function of that name.
  template <class Function>
  Function get_optional(const char* name) const {
    return reinterpret_cast<Function>(find(name));
  }

 private:
  void* find(const char* name) const;    // null: it has none
  void* symbol(const char* name) const;  // Error: it has none

  std::string file_;
  void* handle_ = nullptr;  // never closed: objects that it registered live as long as the program
};

}  // namespace isobar::gpu
