// How calls are carried out: by threads of one process, MPI or NCCL. One object is one rank's end of one group.
#pragma once

#include <memory>
#include <string>

#include "comm/call.h"

namespace isobar {

class Backend {
 public:
  virtual ~Backend() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Carries out a call whose counts and buffers fit each other. `what` names the call for messages: "call 17 of group
  // tp". Returns when the call stands in the stream, or has happened. Throws Error where the ranks' calls do not fit
  // together, where a rank has not come within the time allowed, and where another rank has failed.
  virtual void run(const Call& call, const std::string& what) = 0;

  // A group of those that give the same color, in the order of their keys. Every rank of this group calls it.
  virtual std::unique_ptr<Backend> split(int color, int key) = 0;

  // Whether a rank of the world has failed: whoever waits outside of calls asks this.
  virtual bool has_failed() const = 0;

  // Whether parts that are not equal cost it much more than equal ones: callers make them equal then, by padding.
  virtual bool wants_equal_parts() const { return false; }

  // Whether the ranks are imagined: calls are counted, and none is made to fail (comm/imagined.h).
  virtual bool is_imagined() const { return false; }

  // Whether calls of several groups may be under way at once, in several streams of a device.
  virtual bool may_overlap() const { return true; }
};

}  // namespace isobar
