// turn on the CPU: one line of y along its last axis at a time.
#include "kernels/turn.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

template <class T>
void run(const TurnArgs& a) {
  const std::int64_t width = a.extent[2], lines = a.extent[0] * a.extent[1], points = lines * width;
  T* y = static_cast<T*>(a.y);
  parallel_for(a.batch * lines, kGrain / (width * a.channels + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      const std::int64_t b = line / lines, first = line % lines / a.extent[1], second = line % a.extent[1];
      const Turn turn = turn_of(a.turns != nullptr ? a.turns[b] : 0);
      const TurnWalk walk = walk_of(turn, a.extent);
      const std::int64_t start = walk.start + first * walk.step[0] + second * walk.step[1], step = walk.step[2];
      for (std::int64_t c = 0; c < a.channels; ++c) {
        const TurnSource source = source_of(turn, c, a.vector);
        const float* from = a.x + (b * a.channels + source.channel) * points + start;
        T* to = y + line * width * a.channels + c;
        for (std::int64_t i = 0; i < width; ++i) to[i * a.channels] = convert<T>(source.sign * from[i * step]);
      }
    }
  });
}

}  // namespace

void turn(const TurnArgs& a) {
  check_turn(a, a.turns);
  visit_floating(a.dtype, [&]<class T>(Type<T>) { run<T>(a); });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(turn, TurnArgs)
