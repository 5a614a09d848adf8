// NVIDIA's libraries, loaded when they are first needed: a build with CUDA starts on a machine that has none of them.
#pragma once

#include <string>

#include "kernels/common/check.h"

namespace isobar::gpu {

class Library {
 public:
  // `file` as the loader spells it, "libcublasLt.so.13". Looked for in $ISOBAR_CUDA_LIBS (a folder), by the loader
  // itself, in ../lib beside the program, in NVIDIA's Python packages ($VIRTUAL_ENV, the user's, the system's), in
  // $CUDA_HOME/lib64 and in /usr/local/cuda/lib64. Throws Error when it is in none of them.
  explicit Library(const std::string& file);

  // The function of that name: library.get<decltype(&cublasLtCreate)>("cublasLtCreate").
  template <class Function>
  Function get(const char* name) const {
    return reinterpret_cast<Function>(symbol(name));
  }
  // The same, or null where the library has no function of that name.
  template <class Function>
  Function get_optional(const char* name) const {
    return reinterpret_cast<Function>(find(name));
  }

 private:
  void* find(const char* name) const;    // null: it has none
  void* symbol(const char* name) const;  // Error: it has none

  std::string file_;
  void* handle_ = nullptr;  // never closed: what it registered lives as long as the program
};

}  // namespace isobar::gpu
