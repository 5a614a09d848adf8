#include "kernels/emulator/stand_in.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "kernels/common/check.h"
#include "kernels/emulator/devices.h"
#include "kernels/emulator/questions.h"
#include "kernels/emulator/streams.h"

namespace isobar::emulator {
namespace {

using Run = const char* (*)(void* data, bool dropped);

class ForeignWork final : public Work {
 public:
  ForeignWork(void* data, Run run) : data_(data), run_(run) {}
  void run(std::exception_ptr& failure) noexcept override {
    if (const char* sentence = run_(data_, failure != nullptr)) failure = std::make_exception_ptr(Error(sentence));
  }

 private:
  void* data_;
  Run run_;
};

Event& event_of(void* event) {
  return *static_cast<Event*>(event);
}

void queue_foreign(Stream stream, void* data, Run run, const StandInBuffer*, std::size_t) {
  queue_work(stream, std::make_unique<ForeignWork>(data, run));
}

void* record_event(Stream stream) {
  auto event = std::make_unique<Event>();
  event->record(stream);
  return event.release();
}

void run_up_to(void* event) {
  try {
    event_of(event).synchronize();
  } catch (const std::exception&) {  // thrown again at every wait for that stream
  }
}

std::size_t device_name(char* name, std::size_t capacity) {
  const std::string text = current_device().name;
  const std::size_t length = std::min(text.size(), capacity - 1);
  std::memcpy(name, text.data(), length);
  name[length] = '\0';
  return length;
}

}  // namespace

const StandInTable& stand_in_table() {
  static const StandInTable table{
      .queue = queue_foreign,
      .is_idle = is_idle,
      .record_event = record_event,
      .delete_event = [](void* event) { delete static_cast<Event*>(event); },
      .make_wait = [](void* event, Stream stream) { event_of(event).make_wait(stream); },
      .run_up_to = run_up_to,
      .is_reached = [](void* event) { return event_of(event).is_reached(); },
      .is_before = [](void* event, Stream stream) { return event_of(event).is_before(stream); },
      .device_index = [] { return current_device().index; },
      .device_name = device_name,
      .use_device = [](int index, const char* name) { set_device(index, name); },
      .is_memory = is_memory,
      .may_access = [](int, const void*) { return true; },
      .copy = [](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); },
      .fill = [](void* to, int byte, std::size_t bytes) { std::memset(to, byte, bytes); },
      .set_question = set_question,
  };
  return table;
}

}  // namespace isobar::emulator
