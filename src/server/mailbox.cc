#include "server/mailbox.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace turboquant::server {

namespace asio = boost::asio;

void Mailbox::Post(RequestOutput output) {
  asio::post(executor_, [self = shared_from_this(), output = std::move(output)]() mutable {
    self->outputs_.push_back(std::move(output));
    self->arrival_.cancel();
  });
}

asio::awaitable<std::vector<RequestOutput>> Mailbox::Take(std::chrono::milliseconds patience) {
  if (outputs_.empty()) {
    arrival_.expires_after(patience);
    co_await arrival_.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  co_return std::exchange(outputs_, {});
}

}  // namespace turboquant::server
