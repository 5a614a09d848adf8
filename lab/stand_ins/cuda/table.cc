#include "lab/stand_ins/cuda/table.h"

#include <unistd.h>

#include <cstring>

#include "lab/stand_ins/cuda/driver.h"

namespace isobar::virtual_gpu {
namespace {

using emulator::StandInBuffer;
constexpr const char* kDeviceName = " virtual GPU ";  // after its host's name
using Run = const char* (*)(void* data, bool dropped);

const emulator::StandInTable* emulated = nullptr;

// A Refusal must not leave the library: others do not know that type.
template <class F>
auto translated(const F& f) {
  try {
    return f();
  } catch (const Refusal& refusal) {
    if (refusal.is_misuse) break_context(kAllDevices, refusal.code, refusal.sentence);
    throw Error(refusal.sentence);
  }
}

cudaStream_t native(Stream stream) {
  return static_cast<cudaStream_t>(stream);
}

// The null stream belongs to the device that the thread selected last, a GPU's or the emulator's.
bool is_of_gpu(Stream stream) {
  return stream == nullptr ? has_chosen_device() : is_stream(native(stream));
}

void queue_run(Stream stream, void* data, Run run, const StandInBuffer* buffers, std::size_t count) {
  if (!is_of_gpu(stream)) return emulated->queue(stream, data, run, buffers, count);
  translated([&] {
    LastingOperation work{.operation = {.name = "NCCL", .run = [] {}, .operands = {}},
                          .run = [=](bool dropped) -> std::string {
                            const char* sentence = run(data, dropped);
                            return sentence == nullptr ? "" : sentence;
                          }};
    for (std::size_t i = 0; i < count; ++i)
      if (buffers[i].bytes > 0)
        work.operation.operands.push_back(
            {buffers[i].data, buffers[i].bytes, "a buffer of NCCL", buffers[i].is_written});
    queue_lasting(native(stream), std::move(work));
  });
}

bool is_idle(Stream stream) {  // work on a stream of the virtual GPU may have to wait for other streams
  return !is_of_gpu(stream) && emulated->is_idle(stream);
}

// An event of the virtual GPU or of the emulator.
struct AnyEvent {
  std::unique_ptr<Point> point;
  void* other = nullptr;
};
AnyEvent& event_of(void* event) {
  return *static_cast<AnyEvent*>(event);
}

void* record_event(Stream stream) {
  auto event = std::make_unique<AnyEvent>();
  if (is_of_gpu(stream))
    event->point = translated([&] { return std::make_unique<Point>(native(stream)); });
  else
    event->other = emulated->record_event(stream);
  return event.release();
}

void delete_event(void* event) {
  const std::unique_ptr<AnyEvent> deleted(&event_of(event));
  if (deleted->other != nullptr) emulated->delete_event(deleted->other);
}

void make_wait(void* event, Stream stream) {
  const AnyEvent& awaited = event_of(event);
  if (awaited.point == nullptr) return emulated->make_wait(awaited.other, stream);
  translated([&] { awaited.point->make_wait(native(stream)); });
}

void run_up_to(void* event) {
  const AnyEvent& awaited = event_of(event);
  if (awaited.point == nullptr) return emulated->run_up_to(awaited.other);
  awaited.point->run_up_to();
}

bool is_reached(void* event) {
  const AnyEvent& asked = event_of(event);
  return asked.point == nullptr ? emulated->is_reached(asked.other) : asked.point->is_reached();
}

bool is_before(void* event, Stream stream) {
  const AnyEvent& asked = event_of(event);
  if (asked.point == nullptr) return emulated->is_before(asked.other, stream);
  return translated([&] { return asked.point->is_before(native(stream)); });
}

int device_index() {
  return has_chosen_device() ? current_device() : emulated->device_index();
}

std::size_t device_name(char* name, std::size_t capacity) {
  if (!has_chosen_device()) return emulated->device_name(name, capacity);
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const std::string text =
      concat(host, kDeviceName, number_setting("ISOBAR_VIRTUAL_GPU_NUMBER", 0), '.', current_device());
  const std::size_t length = std::min(text.size(), capacity - 1);
  std::memcpy(name, text.data(), length);
  name[length] = '\0';
  return length;
}

void use_device(int index, const char* name) {
  if (std::strstr(name, kDeviceName) == nullptr) return emulated->use_device(index, name);
  set_current_device(index);
  use_context("a thread of NCCL");
}

bool is_memory(int index, const void* data, std::size_t bytes) {
  if (!is_device_address(data)) return emulated->is_memory(index, data, bytes);
  const SharedAllocation allocation = find_allocation(data);
  return allocation != nullptr && !allocation->is_freed && allocation->device == index &&
         static_cast<const std::byte*>(data) + bytes <= allocation->address + allocation->bytes;
}

bool is_reachable(int index, const void* data) {
  if (!is_device_address(data)) return emulated->may_access(index, data);
  const SharedAllocation allocation = find_allocation(data);
  return allocation != nullptr && may_access(index, *allocation);
}

}  // namespace
}  // namespace isobar::virtual_gpu

extern "C" [[gnu::visibility("default")]] const isobar::emulator::StandInTable* isobar_virtual_gpu_table(
    const isobar::emulator::StandInTable* of_emulator) {
  using namespace isobar::virtual_gpu;
  emulated = of_emulator;
  static const isobar::emulator::StandInTable table{
      .queue = queue_run,
      .is_idle = is_idle,
      .record_event = record_event,
      .delete_event = delete_event,
      .make_wait = make_wait,
      .run_up_to = run_up_to,
      .is_reached = is_reached,
      .is_before = is_before,
      .device_index = device_index,
      .device_name = device_name,
      .use_device = use_device,
      .is_memory = is_memory,
      .may_access = is_reachable,
      .copy = copy_alone,
      .fill = fill_alone,
      .set_question = of_emulator->set_question,
  };
  return &table;
}
