// Death is told by a pidfd of our own rather than by Boost.Process's handle: that one waits without a bound in its
// destructor, and keeps the pid after the process is gone.
#include "pool/worker.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/files.hpp"
#include "wire/frame.hpp"

namespace jitune::pool {
namespace {

namespace asio = boost::asio;
using asio::posix::stream_descriptor;
using boost::system::error_code;

constexpr size_t kStderrRingBytes = 65536, kStderrTailBytes = 2048;
constexpr Milliseconds kClosedGrace{200};  // a dying process closes its pipes a little before it is dead
constexpr Milliseconds kRetireGrace{2000};
constexpr Milliseconds kAskInterval{10};
constexpr Milliseconds kDeadlineInterval{1000};  // how often a deadline that may change is asked for

/// Longer than any study, short enough for the clock's arithmetic.
Milliseconds bounded(Milliseconds time) {
  return std::clamp(time, Milliseconds(0), Milliseconds(std::chrono::hours(24 * 365)));
}

std::string seconds(Milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(time.count()) / 1000);
  return text;
}

/// Reads what is in a pipe without waiting.
template <class Take>
void read_rest(stream_descriptor& pipe, Take&& take) {
  std::array<char, 65536> chunk;
  for (size_t total = 0; pipe.is_open() && total < wire::kMaxPayloadBytes;) {
    const ssize_t got = ::read(pipe.native_handle(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    total += static_cast<size_t>(got);
    take(std::string_view(chunk.data(), static_cast<size_t>(got)));
  }
}

/// What is wrong with a hello, naming both sides; "" when all is well.
std::string wrong_hello(const Json& hello, const WorkerProgram& program) {
  const std::string kind = program.args.empty() ? "" : program.args.front();
  const std::string said = wire::get_string(hello, "hello"), version = wire::get_string(hello, "version");
  const int64_t protocol = wire::get_int(hello, "protocol", -1);
  if (protocol != wire::kProtocolVersion || version != JITUNE_VERSION)
    return "the worker '" + program.path + "' is jitune " + version + " (protocol " + std::to_string(protocol) +
           "), '" + own_module_path() + "' is jitune " JITUNE_VERSION " (protocol " +
           std::to_string(wire::kProtocolVersion) + "); install both from one build";
  if (!kind.empty() && said != kind)
    return "the worker '" + program.path + "' says it is a '" + said + "' worker, but '" + own_module_path() +
           "' asked for a '" + kind + "' worker";
  return "";
}

}  // namespace

void deliver(const Pool::Callback& done, Reply reply) {
  try {
    done(std::move(reply));
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

Reply refusal(Outcome outcome, std::string detail) {
  Reply reply;
  reply.outcome = outcome;
  reply.detail = std::move(detail);
  return reply;
}

Worker::Worker(asio::io_context& io, WorkerEvents& events, const PoolOptions& options, Spawned spawned)
    : events_(events),
      options_(options),
      process_(std::move(spawned)),
      in_(io, process_.to_stdin.release()),
      out_(io, process_.from_stdout.release()),
      err_(io, process_.from_stderr.release()),
      death_(io),
      ask_timer_(io),
      deadline_timer_(io),
      kill_timer_(io) {}

void Worker::start() {
  error_code ignored;
  for (stream_descriptor* pipe : {&in_, &out_, &err_}) pipe->native_non_blocking(true, ignored);
  if (process_.pidfd) {
    // Asio's copy for waiting; ours for signals.
    const int copy = ::fcntl(process_.pidfd.get(), F_DUPFD_CLOEXEC, 3);
    if (copy >= 0) death_.assign(copy, ignored);
  }
  watch_death();
  read_out();
  read_err();
  deadline_timer_.expires_after(bounded(options_.hello_timeout));
  deadline_timer_.async_wait([self = shared_from_this()](error_code ec) {
    if (ec || self->phase_ != Phase::starting) return;
    const std::string reason = "the worker '" + self->options_.program.path + "' did not say hello within " +
                               seconds(self->options_.hello_timeout);
    self->kill(Outcome::no_worker, reason);
    self->events_.refused(reason);
  });
}

void Worker::give(Request request) {
  phase_ = Phase::busy;
  request_ = std::make_unique<Request>(std::move(request));
  stderr_.clear();
  sent_at_ = Clock::now();
  watch_deadline();
  // The frame outlives its request, whose worker may be killed while it is being written.
  auto frame = std::make_shared<std::string>(std::move(request_->frame));
  asio::async_write(in_, asio::buffer(*frame),
                    [self = shared_from_this(), frame, id = request_->id](error_code ec, size_t) {
                      if (ec && self->request_id() == id) self->pipe_closed("input");
                    });
}

/// Kills the worker when its request's deadline has passed, else sets the timer for it, or for the next moment at which
/// the deadline may have become another.
void Worker::watch_deadline() {
  const RequestOptions& options = request_->options;
  limit_ = bounded(options.deadline);
  auto wake_at = sent_at_ + limit_;
  if (options.current_deadline) {
    limit_ = std::min(limit_, bounded(options.current_deadline()));
    wake_at = std::min(sent_at_ + limit_, Clock::now() + kDeadlineInterval);
  }
  if (Clock::now() >= sent_at_ + limit_) return kill(Outcome::timeout, "no answer within " + seconds(limit_));
  deadline_timer_.expires_at(wake_at);
  deadline_timer_.async_wait([self = shared_from_this(), id = request_->id](error_code ec) {
    if (!ec && self->request_id() == id && self->phase_ == Phase::busy) self->watch_deadline();
  });
}

/// Waits for a request, though not for ever.
void Worker::rest() {
  phase_ = Phase::idle;
  deadline_timer_.cancel();
  if (options_.idle_exit.count() <= 0) return;
  deadline_timer_.expires_after(bounded(options_.idle_exit));
  deadline_timer_.async_wait([self = shared_from_this(), served = served_](error_code ec) {
    if (!ec && self->phase_ == Phase::idle && self->served_ == served) self->retire();
  });
}

void Worker::kill(Outcome outcome, std::string reason) {
  if (phase_ == Phase::killed || phase_ == Phase::gone) return;
  phase_ = Phase::killed;
  kill_outcome_ = outcome;
  kill_reason_ = std::move(reason);
  deadline_timer_.cancel();
  kill_now(process_);
  kill_timer_.expires_after(bounded(options_.stuck_after));
  kill_timer_.async_wait([self = shared_from_this()](error_code ec) {
    if (!ec && self->phase_ == Phase::killed) self->give_up();
  });
}

void Worker::abandon(Outcome outcome, const std::string& reason) {
  if (const auto request = std::exchange(request_, nullptr)) deliver(request->done, reply_of(outcome, reason));
}

pid_t Worker::release() {
  phase_ = Phase::gone;
  close_all();
  return std::exchange(process_.pid, -1);
}

void Worker::watch_death() {
  if (!death_.is_open()) {  // pidfd_open is refused here
    ask_timer_.expires_after(kAskInterval);
    ask_timer_.async_wait([self = shared_from_this()](error_code ec) {
      if (!ec) self->check_death();
    });
    return;
  }
  death_.async_wait(stream_descriptor::wait_read, [self = shared_from_this()](error_code ec) {
    if (!ec) self->check_death();
  });
}

bool Worker::has_ended() const {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(process_.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return errno == ECHILD;
  return info.si_pid != 0;
}

void Worker::check_death() {
  if (phase_ == Phase::gone) return;
  int status = 0;
  pid_t got = 0;
  do {
    got = ::waitpid(process_.pid, &status, WNOHANG);
  } while (got < 0 && errno == EINTR);
  if (got == 0) {
    watch_death();
  } else if (got > 0) {
    bury({describe_status(status), true, WIFEXITED(status) != 0, WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL});
  } else {  // the host ignores SIGCHLD or waits for any child
    bury({"ended, its status unknown because this program collects all its children itself", false, false, false});
  }
}

Worker::Verdict Worker::judge(Phase last, const Ending& ending) const {
  const bool by_us = ending.by_sigkill || !ending.known;
  if (last == Phase::killed && (by_us || !pipe_closed_)) {
    const bool nonsense = kill_outcome_ == Outcome::protocol;
    const bool at_start = request_ == nullptr && served_ == 0;
    return {kill_outcome_, kill_reason_, {nonsense ? kill_reason_ : "", at_start, false}};
  }
  // Between requests a death costs nothing; but one that never answered anything would be followed by the next such.
  if (last == Phase::retiring || (last == Phase::idle && served_ > 0))
    return {Outcome::crash, ending.text, {"", false, ending.by_sigkill}};
  std::string text = ending.text;
  if (buffer_.pending_bytes() > 0)
    text += ", after " + std::to_string(buffer_.pending_bytes()) + " bytes of an unfinished message";
  if (last != Phase::starting) return {Outcome::crash, text, {text, false, ending.by_sigkill}};
  text = "the worker '" + options_.program.path + "' " + text + " before its hello";
  if (const std::string words = stderr_tail(); !words.empty()) text += ": " + words;
  return {Outcome::no_worker, text, {text, ending.exited, ending.by_sigkill}};
}

void Worker::bury(const Ending& ending) {
  dead_ = true;
  drain();
  const Phase last = std::exchange(phase_, Phase::gone);
  process_.pid = -1;
  close_all();
  const Verdict verdict = judge(last, ending);
  const auto request = std::exchange(request_, nullptr);
  // The engine first: the next request is on its way before the callback runs.
  const auto self = shared_from_this();
  events_.gone(*this, verdict.death);
  if (!request) return;
  Reply reply = reply_of(verdict.outcome, verdict.detail);
  reply.likely_oom = verdict.outcome == Outcome::crash && verdict.death.likely_oom;
  deliver(request->done, std::move(reply));
}

void Worker::close_all() {
  for (asio::steady_timer* timer : {&ask_timer_, &deadline_timer_, &kill_timer_}) timer->cancel();
  error_code ignored;
  for (stream_descriptor* pipe : {&in_, &out_, &err_, &death_}) pipe->close(ignored);
  process_.pidfd.reset();
}

void Worker::give_up() {
  stuck_ = true;
  abandon(kill_outcome_, kill_reason_ + "; the worker can't be killed (stuck in the driver?)");
  events_.stuck(*this);
}

Reply Worker::reply_of(Outcome outcome, const std::string& detail) const {
  Reply reply = refusal(outcome, detail);
  reply.stderr_tail = stderr_tail();
  reply.wall_ms = ms_since(sent_at_);
  if (outcome == Outcome::timeout) reply.limit = limit_;
  return reply;
}

std::string Worker::stderr_tail() const {
  return stderr_.size() <= kStderrTailBytes ? stderr_ : stderr_.substr(stderr_.size() - kStderrTailBytes);
}

void Worker::keep_stderr(std::string_view text) {
  stderr_.append(text);
  if (stderr_.size() > 2 * kStderrRingBytes) stderr_.erase(0, stderr_.size() - kStderrRingBytes);
}

void Worker::read_out() {
  out_.async_read_some(asio::buffer(out_chunk_), [self = shared_from_this()](error_code ec, size_t size) {
    if (self->phase_ == Phase::gone) return;
    if (ec) return self->pipe_closed("output");
    self->buffer_.append({self->out_chunk_.data(), size});
    self->take_messages();
    if (self->phase_ != Phase::gone && self->phase_ != Phase::killed) self->read_out();
  });
}

void Worker::read_err() {
  err_.async_read_some(asio::buffer(err_chunk_), [self = shared_from_this()](error_code ec, size_t size) {
    if (ec || self->phase_ == Phase::gone) return;
    self->keep_stderr({self->err_chunk_.data(), size});
    self->read_err();
  });
}

/// What a dead worker left in its pipes: perhaps its last answer, surely its last words.
void Worker::drain() {
  read_rest(err_, [&](std::string_view text) { keep_stderr(text); });
  if (phase_ == Phase::killed) return;
  read_rest(out_, [&](std::string_view bytes) { buffer_.append(bytes); });
  take_messages();
}

void Worker::take_messages() {
  while (phase_ != Phase::killed && phase_ != Phase::gone) {
    auto message = buffer_.next();
    if (!message) return kill(Outcome::protocol, "the worker sent " + message.error());
    if (!message->has_value()) return;
    if (phase_ == Phase::starting) {
      take_hello(**message);
    } else {
      take_answer(**message);
    }
  }
}

void Worker::take_hello(const Json& hello) {
  if (const std::string wrong = wrong_hello(hello, options_.program); !wrong.empty()) {
    kill(Outcome::no_worker, wrong);
    return events_.refused(wrong);
  }
  rest();
  events_.said_hello(hello);
}

void Worker::take_answer(Json& message) {
  if (phase_ != Phase::busy) return kill(Outcome::protocol, "the worker sent an answer that nobody asked for");
  const auto reply = message.find("reply");
  const int64_t id = wire::get_int(message, "id", -1);
  if (id != static_cast<int64_t>(request_->id) || reply == message.end())
    return kill(Outcome::protocol, "the worker answered request " + std::to_string(id) + " instead of request " +
                                       std::to_string(request_->id));
  const auto request = std::exchange(request_, nullptr);
  Reply answer = reply_of(Outcome::ok, "");
  answer.message = std::move(*reply);
  ++served_;
  const bool full = served_ >= options_.max_requests_per_worker ||
                    resident_bytes(process_.pid) > options_.max_resident_bytes || wire::get_bool(message, "last");
  rest();
  if (full) retire();
  // The engine first: the worker gets its next request before this answer is looked at.
  events_.answered(*this);
  deliver(request->done, std::move(answer));
}

void Worker::retire() {
  phase_ = Phase::retiring;
  deadline_timer_.cancel();
  error_code ignored;
  in_.close(ignored);
  kill_timer_.expires_after(kRetireGrace);
  kill_timer_.async_wait([self = shared_from_this()](error_code ec) {
    if (!ec && self->phase_ == Phase::retiring) self->kill(Outcome::cancelled, "it did not end by itself");
  });
}

void Worker::pipe_closed(const char* which) {
  if (phase_ == Phase::retiring || phase_ == Phase::killed || phase_ == Phase::gone) return;
  kill_timer_.expires_after(kClosedGrace);
  kill_timer_.async_wait([self = shared_from_this(), which](error_code ec) {
    if (ec || self->phase_ == Phase::killed || self->phase_ == Phase::gone) return;
    self->pipe_closed_ = true;
    self->kill(Outcome::protocol, std::string("the worker closed its ") + which + " and went on");
  });
}

}  // namespace jitune::pool
