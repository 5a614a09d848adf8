// The C++ part of the CUDA runtime: launching kernels with any parameters.
#pragma once

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

namespace isobar::virtual_gpu {

// A kernel's parameters as bytes: the driver finds the device addresses among them.
struct Parameters {
  const void* kernel;
  std::vector<std::byte> bytes;
};

// Queues a grid in which every thread calls body(&parameters).
cudaError_t launch(const cudaLaunchConfig_t& config, void (*body)(const void*), Parameters parameters);

template <class... Types>
struct Signature {
  static_assert((std::is_trivially_copyable_v<Types> && ...), "a kernel's parameters are copied as bytes");

  // The begin of each parameter, and the end of the last one.
  static constexpr std::array<std::size_t, sizeof...(Types) + 1> offsets() {
    std::array<std::size_t, sizeof...(Types) + 1> begins{};
    const std::size_t sizes[] = {sizeof(Types)..., 0}, alignments[] = {alignof(Types)..., 1};
    std::size_t end = 0;
    for (std::size_t i = 0; i <= sizeof...(Types); ++i) {
      begins[i] = (end + alignments[i] - 1) / alignments[i] * alignments[i];
      end = begins[i] + sizes[i];
    }
    return begins;
  }

  template <class Type>
  static void put(std::byte* to, const Type& value) {
    std::memcpy(to, &value, sizeof value);
    // Padding may hold bytes that look like an address. It is cleared in the copy: of a local variable GCC 12 may copy
    // the members alone afterwards. Behind an array of structs GCC 12 clears the wrong bytes: a parameter with one has
    // to have no padding.
    if constexpr (!std::has_unique_object_representations_v<Type>) __builtin_clear_padding(reinterpret_cast<Type*>(to));
  }
  template <class Type>
  static Type get(const std::byte* from) {
    std::array<std::byte, sizeof(Type)> bytes;
    std::memcpy(bytes.data(), from, sizeof bytes);
    return std::bit_cast<Type>(bytes);
  }

  static void call(const void* data) {
    const Parameters& parameters = *static_cast<const Parameters*>(data);
    const auto kernel = reinterpret_cast<void (*)(Types...)>(const_cast<void*>(parameters.kernel));
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      kernel(get<Types>(parameters.bytes.data() + offsets()[I])...);
    }
    (std::index_sequence_for<Types...>());
  }
};

}  // namespace isobar::virtual_gpu

template <class... Types, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Types...), Arguments&&... arguments) {
  using Signature = isobar::virtual_gpu::Signature<Types...>;
  isobar::virtual_gpu::Parameters parameters{reinterpret_cast<const void*>(kernel),
                                             std::vector<std::byte>(Signature::offsets().back())};
  const auto put = [&]<std::size_t... I>(std::index_sequence<I...>) {
    (Signature::template put<Types>(parameters.bytes.data() + Signature::offsets()[I],
                                    std::forward<Arguments>(arguments)),
     ...);
  };
  put(std::index_sequence_for<Types...>());
  return isobar::virtual_gpu::launch(*config, Signature::call, std::move(parameters));
}
