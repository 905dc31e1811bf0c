#include "server/server.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

#include "server/app.h"
#include "server/connection.h"

namespace turboquant::server {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr int kMaxConnections = 1024;
constexpr auto kPollInterval = 50ms;

Result<tcp::endpoint> EndpointOf(const ServerOptions& options) {
  boost::system::error_code error;
  const std::string& host = options.host == "localhost" ? "127.0.0.1" : options.host;
  const auto address = asio::ip::make_address(host, error);
  if (error) {
    return Fail(ErrorCode::kInvalidArgument,
                "--host {}: want an address such as 127.0.0.1, 0.0.0.0 or ::1", options.host);
  }
  return tcp::endpoint(address, static_cast<uint16_t>(options.port));
}

}  // namespace

struct Server::Impl {
  Impl(ServerOptions the_options, EngineService* engine, const tcp::endpoint& endpoint)
      : options(std::move(the_options)),
        app(engine, {.model_name = options.model_name,
                     .version = options.version,
                     .access = {.loopback_only = endpoint.address().is_loopback(),
                                .api_key = options.api_key,
                                .origins = options.allowed_origins}}) {}

  Status Bind(const tcp::endpoint& endpoint);
  awaitable<void> Accept();
  awaitable<void> WatchStop(const std::atomic<bool>& stop);
  awaitable<bool> AwaitAnswers(Clock::time_point deadline);
  awaitable<void> Pause();

  ServerOptions options;
  App app;
  // Before the connections' state: their coroutines end when it is destroyed.
  ConnectionState connections{.app = &app};
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::Listen(ServerOptions options, EngineService* engine) {
  TQ_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, EndpointOf(options));
  auto impl = std::make_unique<Impl>(std::move(options), engine, endpoint);
  TQ_RETURN_IF_ERROR(impl->Bind(endpoint));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Status Server::Impl::Bind(const tcp::endpoint& endpoint) {
  boost::system::error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) return {};
  return Fail(ErrorCode::kIo, "port {} of {}: {}; choose another with --port, 0 takes a free one",
              options.port, options.host, error.message());
}

std::string Server::Url() const {
  const tcp::endpoint endpoint = impl_->acceptor.local_endpoint();
  const std::string address = endpoint.address().to_string();
  return fmt::format(fmt::runtime(endpoint.address().is_v6() ? "http://[{}]:{}" : "http://{}:{}"),
                     address, endpoint.port());
}

void Server::Run(const std::atomic<bool>& stop) {
  asio::co_spawn(impl_->io, impl_->Accept(), asio::detached);
  asio::co_spawn(impl_->io, impl_->WatchStop(stop), asio::detached);
  impl_->io.run();
  impl_->app.engine().Stop();
}

awaitable<void> Server::Impl::Pause() {
  asio::steady_timer timer(io, kPollInterval);
  co_await timer.async_wait(kNoThrow);
}

awaitable<void> Server::Impl::Accept() {
  while (acceptor.is_open()) {
    if (connections.open >= kMaxConnections) {
      co_await Pause();
      continue;
    }
    auto [error, socket] = co_await acceptor.async_accept(kNoThrow);
    if (error == asio::error::operation_aborted) co_return;
    if (error) {  // too many open files, say: others may close theirs
      spdlog::warn("a connection could not be taken: {}", error.message());
      co_await Pause();
      continue;
    }
    asio::co_spawn(io, ServeConnection(std::move(socket), &connections), asio::detached);
  }
}

// A signal handler can set a flag and little more: it is looked at.
awaitable<void> Server::Impl::WatchStop(const std::atomic<bool>& stop) {
  while (!stop.load(std::memory_order_relaxed)) co_await Pause();
  app.Drain();
  connections.closing = true;
  spdlog::info("stopping: {} answers under way have {} s (a second signal ends it at once)",
               connections.answering, options.shutdown_timeout_s);
  const auto patience = std::chrono::duration<double>(options.shutdown_timeout_s);
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
  if (!co_await AwaitAnswers(deadline)) {
    spdlog::warn("{} answers are cut short", connections.answering);
    app.engine().Stop();
    co_await AwaitAnswers(Clock::now() + 2s);
  }
  io.stop();
}

awaitable<bool> Server::Impl::AwaitAnswers(Clock::time_point deadline) {
  while (connections.answering > 0 && Clock::now() < deadline) co_await Pause();
  co_return connections.answering == 0;
}

}  // namespace turboquant::server
