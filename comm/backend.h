// Carries out calls: by threads of one process, by MPI or by NCCL. One object is one rank's end of one group.
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

  // Carries out a call whose counts match its buffers. `what` names the call in messages: "call 17 of group tp".
  // Returns when the call is enqueued in the stream, or complete. Throws Error if the ranks' calls do not match, if a
  // rank does not join within the timeout, or if another rank has failed.
  virtual void run(const Call& call, const std::string& what) = 0;

  // As MPI_Comm_split: a group of the ranks that pass the same color, ordered by their keys. All ranks of this group
  // call it.
  virtual std::unique_ptr<Backend> split(int color, int key) = 0;

  // Whether a rank of the world has failed. For code that waits outside of calls.
  virtual bool has_failed() const = 0;

  // Whether parts of unequal size cost much more than equal ones. If so, callers pad the parts to equal sizes.
  virtual bool prefers_equal_parts() const { return false; }

  // Whether the ranks are imagined: calls are counted, and none is made to fail (comm/imagined.h).
  virtual bool is_imagined() const { return false; }

  // Whether calls of several groups may be in flight at once, in several streams of one device.
  virtual bool may_overlap() const { return true; }
};

}  // namespace isobar
