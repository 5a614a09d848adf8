// The functions of the emulator for a library that replaces one of NVIDIA's: a table, which the program passes to the
// library's function kAttachName after loading it. With a table, programs need not export symbols, and a library
// without the function is known to be NVIDIA's own.
#pragma once

#include <cstddef>

#include "kernels/common/stream.h"

namespace isobar::emulator {

// Memory that work on a stream reads or writes.
struct StandInBuffer {
  const void* data;
  std::size_t bytes;
  bool is_written;
};

struct StandInTable {
  // Work for a stream. When it is its turn, run(data, false) returns null or the sentence of an error, which ends the
  // stream. If earlier work of the stream has failed, run(data, true) is called instead. One of them is called, once.
  // The sentence is copied before anything else is called.
  void (*queue)(Stream stream, void* data, const char* (*run)(void* data, bool dropped), const StandInBuffer* buffers,
                std::size_t count);
  // Whether the stream has nothing to do: its work is done, and the host may write the memory.
  bool (*is_idle)(Stream stream);

  // Events (kernels/emulator/streams.h).
  void* (*record_event)(Stream stream);  // a new one; delete_event ends it
  void (*delete_event)(void* event);
  void (*make_wait)(void* event, Stream stream);
  void (*run_up_to)(void* event);  // errors are thrown at waits for the stream
  bool (*is_reached)(void* event);
  bool (*is_before)(void* event, Stream stream);

  // For this thread (kernels/emulator/devices.h).
  int (*device_index)();
  std::size_t (*device_name)(char* name, std::size_t capacity);  // ends with 0; cut if it is too long
  void (*use_device)(int index, const char* name);               // for a thread of the library: its rank's device
  bool (*is_memory)(int index, const void* data, std::size_t bytes);
  // Whether another device of this process, `index`, may use the memory.
  bool (*may_access)(int index, const void* data);

  // For work that runs. Either side may be memory of a device.
  void (*copy)(void* to, const void* from, std::size_t bytes);
  void (*fill)(void* to, int byte, std::size_t bytes);

  // kernels/emulator/questions.h
  void (*set_question)(const char* (*question)());
};

// Exists if the library also works on the GPUs of this program, which are emulated themselves.
inline constexpr const char* kAttachName = "isobar_stand_in_attach";
using AttachFunction = bool (*)(const StandInTable* table);

const StandInTable& stand_in_table();

}  // namespace isobar::emulator
