// One client's connection: reads calls, writes replies and streams, one after the other.
#ifndef TURBOQUANT_SERVER_CONNECTION_H_
#define TURBOQUANT_SERVER_CONNECTION_H_

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "server/app.h"

namespace turboquant::server {

// Shared by all connections; on their one thread.
struct ConnectionState {
  App* app;
  int open = 0;          // connections
  int answering = 0;     // calls that have been read and not fully answered
  bool closing = false;  // no call after the one that is being answered
};

// Ends when the client has gone, asks to, is silent for a minute or sends what is no HTTP.
boost::asio::awaitable<void> ServeConnection(boost::asio::ip::tcp::socket socket,
                                             ConnectionState* state);

}  // namespace turboquant::server

#endif  // TURBOQUANT_SERVER_CONNECTION_H_
