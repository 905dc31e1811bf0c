#include "server/connection.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <memory>
#include <utility>

#include "server/mailbox.h"

namespace turboquant::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::awaitable;
using tcp = asio::ip::tcp;
using namespace std::chrono_literals;
using namespace asio::experimental::awaitable_operators;

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr uint32_t kMaxHeaderBytes = 32 << 10;
constexpr uint64_t kMaxBodyBytes = 16 << 20;
constexpr auto kReadTimeout = 60s;   // of a call, and of the silence before it
constexpr auto kWriteTimeout = 30s;  // of one write to a client that does not read
constexpr auto kLinger = 2s;         // for the rest of a call that was refused unread
// A stream that says nothing for so long gets a comment: proxies take silence for death.
constexpr auto kPingInterval = 10s;

using Fields = http::fields;
using RequestMessage = http::request<http::string_body>;

class Connection {
 public:
  Connection(tcp::socket socket, ConnectionState* state)
      : stream_(std::move(socket)), state_(state) {
    ++state_->open;
  }
  ~Connection() { --state_->open; }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  awaitable<void> Serve() {
    beast::error_code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    bool more = true;
    while (more && !state_->closing) more = co_await ServeCall();
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

 private:
  // Reads one call and answers it. False: the connection ends.
  awaitable<bool> ServeCall() {
    http::request_parser<http::string_body> parser;
    parser.header_limit(kMaxHeaderBytes);
    parser.body_limit(kMaxBodyBytes);
    stream_.expires_after(kReadTimeout);
    beast::error_code error = co_await Read(&parser);
    if (error) {
      if (const auto refused = RefusalOf(error)) {
        co_await Write(ErrorReply(*refused), HttpCall(), 11, false);
        co_await Linger();
      }
      co_return false;
    }
    ++state_->answering;
    const RequestMessage message = parser.release();
    const bool keep_alive = message.keep_alive() && !state_->closing;
    const bool written = co_await Respond(message, keep_alive);
    --state_->answering;
    co_return written&& keep_alive;
  }

  awaitable<beast::error_code> Read(http::request_parser<http::string_body>* parser) {
    auto [error, bytes] = co_await http::async_read_header(stream_, buffer_, *parser, kNoThrow);
    if (error) co_return error;
    if (beast::iequals(parser->get()[http::field::expect], "100-continue")) {
      http::response<http::empty_body> go_on(http::status::continue_, 11);
      co_await http::async_write(stream_, go_on, kNoThrow);
    }
    std::tie(error, bytes) = co_await http::async_read(stream_, buffer_, *parser, kNoThrow);
    co_return error;
  }

  // What a client that sent bytes is told; nothing where it only went away.
  static std::optional<ApiError> RefusalOf(beast::error_code error) {
    if (error == http::error::body_limit) {
      return ApiError{.status = 413, .message = "the body is larger than 16 MiB"};
    }
    if (error == http::error::header_limit) {
      return ApiError{.status = 431, .message = "the header is larger than 32 KiB"};
    }
    const bool gone = error == http::error::end_of_stream ||
                      error == http::error::partial_message ||
                      error.category() != make_error_code(http::error::end_of_stream).category();
    if (gone) return std::nullopt;
    return ApiError{.status = 400, .message = "no HTTP request: " + error.message()};
  }

  // Reads what the client still sends: closing over unread bytes resets the connection, and the
  // client may lose the reply that it has not read.
  awaitable<void> Linger() {
    beast::error_code error;
    stream_.socket().shutdown(tcp::socket::shutdown_send, error);
    stream_.expires_after(kLinger);
    while (!error) {
      buffer_.clear();
      size_t bytes = 0;
      std::tie(error, bytes) =
          co_await stream_.async_read_some(buffer_.prepare(kMaxHeaderBytes), kNoThrow);
    }
  }

  static HttpCall ToCall(const RequestMessage& message) {
    const auto text = [&message](auto field) { return std::string(message[field]); };
    const std::string target(message.target());
    return {.method = std::string(message.method_string()),
            .path = target.substr(0, target.find('?')),
            .host = text(http::field::host),
            .origin = text(http::field::origin),
            .authorization = text(http::field::authorization),
            .request_id = text("X-Request-Id"),
            .body = message.body()};
  }

  awaitable<bool> Respond(const RequestMessage& message, bool keep_alive) {
    const HttpCall call = ToCall(message);
    auto handled = state_->app->Handle(call);
    if (auto* reply = std::get_if<HttpReply>(&handled)) {
      co_return co_await Write(*reply, call, message.version(), keep_alive);
    }
    auto& generation = std::get<Generation>(handled);
    auto mailbox = std::make_shared<Mailbox>(co_await asio::this_coro::executor);
    const Result<std::optional<RequestId>> id = state_->app->engine().Submit(
        std::move(generation.request),
        [mailbox](RequestOutput output) { mailbox->Post(std::move(output)); });
    if (!id || !*id) {
      const ApiError error = id ? Overloaded("too many requests wait already")
                                : ApiError{.message = id.error().message};
      co_return co_await Write(ErrorReply(error), call, message.version(), keep_alive);
    }
    co_return co_await Generate(&generation.answer, mailbox.get(), **id, call, keep_alive);
  }

  // Writes the answer while the engine makes it. A client that goes is noticed, and its request
  // cancelled: it would be computed for nobody.
  awaitable<bool> Generate(Answer* answer, Mailbox* mailbox, RequestId id, const HttpCall& call,
                           bool keep_alive) {
    // By name: g++ 12 destroys a conditional operand of co_await twice.
    awaitable<bool> answered = answer->streams() ? Stream(answer, mailbox, call, keep_alive)
                                                 : Collect(answer, mailbox, call, keep_alive);
    const auto result = co_await (std::move(answered) || UntilClosed());
    const bool* written = std::get_if<0>(&result);
    if (!answer->done()) {
      spdlog::debug("request {} cancelled: the client has gone", id.value);
      state_->app->engine().Cancel(id);
    }
    co_await Finish(answer, mailbox);
    co_return written != nullptr && *written;
  }

  // Waits for the last output, so that every request is counted once.
  awaitable<void> Finish(Answer* answer, Mailbox* mailbox) {
    while (!answer->done()) {
      for (const RequestOutput& output : co_await mailbox->Take(1s)) answer->Add(output);
    }
    state_->app->Finished(*answer);
  }

  awaitable<bool> Collect(Answer* answer, Mailbox* mailbox, const HttpCall& call, bool keep_alive) {
    while (!answer->done()) {
      for (const RequestOutput& output : co_await mailbox->Take(kPingInterval)) answer->Add(output);
    }
    co_return co_await Write(answer->Whole(), call, 11, keep_alive);
  }

  awaitable<bool> Stream(Answer* answer, Mailbox* mailbox, const HttpCall& call, bool keep_alive) {
    HttpReply reply = {.content_type = "text/event-stream; charset=utf-8"};
    reply.headers.emplace_back("Cache-Control", "no-cache");
    http::response<http::empty_body> head = Head<http::empty_body>(reply, call, 11, keep_alive);
    head.chunked(true);
    http::response_serializer<http::empty_body> serializer(head);
    stream_.expires_after(kWriteTimeout);
    const auto [error, bytes] = co_await http::async_write_header(stream_, serializer, kNoThrow);
    if (error || !co_await WriteChunk(answer->FirstEvents())) co_return false;
    while (!answer->done()) {
      const std::vector<RequestOutput> outputs = co_await mailbox->Take(kPingInterval);
      std::string events = outputs.empty() ? ": still computing\n\n" : "";
      for (const RequestOutput& output : outputs) events += answer->Add(output);
      if (!co_await WriteChunk(events)) co_return false;
    }
    stream_.expires_after(kWriteTimeout);
    const auto [last_error, last_bytes] =
        co_await asio::async_write(stream_, http::make_chunk_last(), kNoThrow);
    co_return !last_error;
  }

  awaitable<bool> WriteChunk(const std::string& data) {
    if (data.empty()) co_return true;  // an empty chunk would end the body
    stream_.expires_after(kWriteTimeout);
    const auto [error, bytes] =
        co_await asio::async_write(stream_, http::make_chunk(asio::buffer(data)), kNoThrow);
    co_return !error;
  }

  // Ends when the client has closed, and only then.
  awaitable<void> UntilClosed() {
    const auto [error] = co_await stream_.socket().async_wait(tcp::socket::wait_read, kNoThrow);
    char byte = 0;
    const ssize_t peeked =
        ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (error || peeked == 0 || (peeked < 0 && errno != EAGAIN)) co_return;
    // The next call already: it is read when this one has been answered.
    asio::steady_timer never(co_await asio::this_coro::executor,
                             asio::steady_timer::time_point::max());
    co_await never.async_wait(kNoThrow);
  }

  template <typename Body>
  http::response<Body> Head(const HttpReply& reply, const HttpCall& call, unsigned version,
                            bool keep_alive) const {
    http::response<Body> message(static_cast<http::status>(reply.status), version);
    message.set(http::field::server, "turboquant");
    if (!reply.content_type.empty()) message.set(http::field::content_type, reply.content_type);
    for (const auto& [name, value] : reply.headers) message.set(name, value);
    for (const auto& [name, value] : state_->app->CommonHeaders(call)) message.set(name, value);
    message.keep_alive(keep_alive);
    return message;
  }

  awaitable<bool> Write(const HttpReply& reply, const HttpCall& call, unsigned version,
                        bool keep_alive) {
    auto message = Head<http::string_body>(reply, call, version, keep_alive);
    message.body() = reply.body;
    message.prepare_payload();
    http::response_serializer<http::string_body> serializer(message);
    stream_.expires_after(kWriteTimeout);
    if (call.method == "HEAD") {
      const auto [error, bytes] = co_await http::async_write_header(stream_, serializer, kNoThrow);
      co_return !error;
    }
    const auto [error, bytes] = co_await http::async_write(stream_, serializer, kNoThrow);
    co_return !error;
  }

  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  ConnectionState* state_;
};

}  // namespace

awaitable<void> ServeConnection(tcp::socket socket, ConnectionState* state) {
  Connection connection(std::move(socket), state);
  co_await connection.Serve();
}

}  // namespace turboquant::server
