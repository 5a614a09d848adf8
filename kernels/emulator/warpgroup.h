// What the four warps of a warpgroup do together since compute capability 9.0: products by wgmma, named barriers,
// shares of the registers. kernels/cuda/wgmma.h and warpgroup.h are what kernels call.
//
// Stricter than a GPU on purpose. A product is made when somebody waits for it. Its accumulators are NaN until then,
// and it is an error if they, its operands in registers or its tiles in shared memory have changed since it was issued.
// Descriptors are decoded as the hardware has them. Errors too: products without a fence before them, threads of a
// warpgroup that disagree, an end of a thread whose products nobody has waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace isobar::emulator {

struct Fiber;

// An error where the emulated GPU is older than 9.0.
void check_hopper(const char* what, const std::source_location& site);

// ---- Products -------------------------------------------------------------------------------------------------------

// d[64, columns] (+)= A[64, 16] · B[16, columns]: this thread's part of it.
struct Product {
  float* d;  // columns / 2 accumulators
  int columns;
  bool adds;                              // to d; else d is overwritten
  bool is_bf16;                           // else fp16
  const std::uint32_t* a;                 // four words of A; null where A is in shared memory
  std::uint64_t a_tile, b_tile;           // descriptors
  bool a_is_transposed, b_is_transposed;  // in shared memory: rows of k, instead of rows of A or columns of B
};

void fence_products();
void issue_product(const Product& product, const std::source_location& site);
void commit_products();
void wait_for_products(std::size_t groups_in_flight, const std::source_location& site);

// Where a byte lies as descriptors have it; 0 is no tile.
std::uint64_t shared_address(const void* data);

// ---- Named barriers, registers --------------------------------------------------------------------------------------

void sync_named_barrier(int id, int threads, const std::source_location& site);
void arrive_at_named_barrier(int id, int threads, const std::source_location& site);  // does not wait

// This warpgroup has so many registers a thread from now on.
void set_registers(int count, bool more, const std::source_location& site);

// ---- What the scheduler calls ---------------------------------------------------------------------------------------

void reset_warpgroups();  // a block begins
// What is wrong with a thread that ends, or with the warpgroups of a block that has ended; else null.
const char* left_by_thread(const Fiber& fiber);
const char* left_by_warpgroups();

}  // namespace isobar::emulator
