// Operations of the four warps of a warpgroup since compute capability 9.0: products with wgmma, named barriers,
// redistribution of registers. Kernels call kernels/cuda/wgmma.h and mbarrier.h.
//
// It is stricter than a GPU on purpose. A product is computed at a wait for it. Its accumulators are NaN until then,
// and it is an error if they, its operands in registers or its tiles in shared memory have changed since it was issued.
// Descriptors are decoded like in the hardware. Errors are also: products without a fence before them, threads of a
// warpgroup that disagree, and a thread that ends without a wait for its products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace isobar::emulator {

struct Fiber;

// An error if the emulated GPU is older than 9.0.
void check_hopper(const char* what, const std::source_location& site);

// ---- Products -------------------------------------------------------------------------------------------------------

// d[64, columns] (+)= A[64, 16] · B[16, columns]: this thread's part of it.
struct Product {
  float* d;  // columns / 2 accumulators
  int columns;
  bool adds;                     // to d; else d is overwritten
  bool is_bf16;                  // else fp16
  const std::uint32_t* a;        // four words of A; null if A is in shared memory
  std::uint64_t a_tile, b_tile;  // descriptors
  // In shared memory: rows of k, instead of rows of A or columns of B.
  bool a_is_transposed, b_is_transposed;
};

void fence_products();
void issue_product(const Product& product, const std::source_location& site);
void commit_products();
void wait_for_products(std::size_t groups_in_flight, const std::source_location& site);

// The address of a byte as descriptors encode it; 0 means no tile.
std::uint64_t shared_address(const void* data);

// ---- Named barriers, registers --------------------------------------------------------------------------------------

void sync_named_barrier(int id, int threads, const std::source_location& site);
void arrive_at_named_barrier(int id, int threads, const std::source_location& site);  // does not wait

// From now on this warpgroup has this number of registers a thread.
void set_registers(int count, bool more, const std::source_location& site);

// ---- Called by the scheduler ----------------------------------------------------------------------------------------

void reset_warpgroups();  // at the beginning of a block
// The error of a thread that ends, or of the warpgroups of a block that has ended; else null.
const char* error_of_thread(const Fiber& fiber);
const char* error_of_warpgroups();

}  // namespace isobar::emulator
