// What a library that stands in for one of NVIDIA's may ask of the emulator: a table of functions, which the program
// hands to the library's function kAttachName when it has loaded it. A table and not symbols of the program: programs
// need not export any then, and a library that lacks the function is known to be NVIDIA's own.
#pragma once

#include <cstddef>

#include "kernels/common/device.h"

namespace isobar::emulator {

struct StandInTable {
  // Work for a stream. When the stream gets there run(data, false) returns null or the sentence of an error, which
  // ends the stream; run(data, true) says that earlier work of the stream has failed. One of them is called, once.
  // The sentence is copied before anything else is called.
  void (*queue)(Stream stream, void* data, const char* (*run)(void* data, bool dropped));
  bool (*is_idle)(Stream stream);

  // Events (kernels/emulator/streams.h).
  void* (*record_event)(Stream stream);  // a new one; delete_event ends it
  void (*delete_event)(void* event);
  void (*make_wait)(void* event, Stream stream);
  void (*run_up_to)(void* event);  // errors are left to those who wait for the stream
  bool (*is_reached)(void* event);
  bool (*is_before)(void* event, Stream stream);

  // Of this thread (kernels/emulator/devices.h).
  int (*device_index)();
  std::size_t (*device_name)(char* name, std::size_t capacity);  // ends with 0; cut where it is too long
  bool (*is_memory)(int index, const void* data, std::size_t bytes);

  // kernels/emulator/questions.h
  void (*set_question)(const char* (*question)());
};

inline constexpr const char* kAttachName = "isobar_stand_in_attach";
using AttachFunction = void (*)(const StandInTable* table);

const StandInTable& stand_in_table();

}  // namespace isobar::emulator
