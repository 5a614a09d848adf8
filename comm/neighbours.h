// The processes of one run on one host, where the middle of the meeting (comm/meeting.h) is gone: who has told the user
// of it says so to the others, so that they do not tell it again. A datagram each, at names in the network namespace
// that no file stands for. Who does not know the job's key cannot tell these names, nor say anything there.
#pragma once

#include <string>

#include "comm/hosts.h"
#include "comm/sockets.h"

namespace isobar {

class Neighbours {
 public:
  // port: that of the meeting. Where the system gives no such socket, nothing is heard.
  Neighbours(const std::string& key, const std::string& host_identity, int port, PlaceOnHost mine);

  void tell() const;  // to all that the user has been told
  int descriptor() const { return socket_.get(); }
  bool has_been_told() const;  // reads what has come

 private:
  std::string name_of(int local_rank) const;

  std::string proof_, prefix_;
  PlaceOnHost mine_;
  Socket socket_;
};

}  // namespace isobar
