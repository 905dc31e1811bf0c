// Outputs of one request on their way from the engine's thread to the coroutine that writes them.
#ifndef TURBOQUANT_SERVER_MAILBOX_H_
#define TURBOQUANT_SERVER_MAILBOX_H_

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <vector>

#include "engine/request.h"

namespace turboquant::server {

// Lives as long as the coroutine or the engine still knows it.
class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  explicit Mailbox(const boost::asio::any_io_executor& executor)
      : executor_(executor), arrival_(executor) {}

  // Any thread.
  void Post(RequestOutput output);
  // What has come, in order; waits for something at most `patience`, then returns nothing. On the
  // executor's thread, one at a time.
  boost::asio::awaitable<std::vector<RequestOutput>> Take(std::chrono::milliseconds patience);

 private:
  boost::asio::any_io_executor executor_;
  boost::asio::steady_timer arrival_;  // cancelled when something comes
  std::vector<RequestOutput> outputs_;
};

}  // namespace turboquant::server

#endif  // TURBOQUANT_SERVER_MAILBOX_H_
