// The processes of one run on one host, for the case that rank 0 of the meeting (comm/meeting.h) is gone. A process
// that has reported the failure notifies the others, so that they do not report it again. It sends each a datagram, at
// abstract names in the network namespace. A process that does not know the job's key can neither derive these names
// nor send a valid datagram.
#pragma once

#include <string>

#include "comm/hosts.h"
#include "comm/sockets.h"

namespace isobar {

class Neighbours {
 public:
  // port: that of the meeting. If the system provides no such socket, nothing is received.
  Neighbours(const std::string& key, const std::string& host_identity, int port, PlaceOnHost mine);

  void tell() const;  // notifies all that the failure has been reported
  int descriptor() const { return socket_.get(); }
  bool has_been_notified() const;  // reads the datagrams that have arrived

 private:
  std::string name_of(int local_rank) const;

  std::string proof_, prefix_;
  PlaceOnHost mine_;
  Socket socket_;
};

}  // namespace isobar
