#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "pool/pool.hpp"
#include "pool/process.hpp"
#include "pool/slots.hpp"
#include "wire/frame_buffer.hpp"

namespace jitune::pool {

/// A request as the io thread keeps it.
struct Request {
  uint64_t id = 0;
  std::string frame;
  RequestOptions options;
  Pool::Callback done;
};

/// Calls `done` and swallows what it throws: a callback's trouble must not end the io thread.
void deliver(const Pool::Callback& done, Reply reply);

/// A reply without a message.
Reply refusal(Outcome outcome, std::string detail);

class Worker;

/// What a worker's end says about the pool.
struct Death {
  std::string blame;        ///< "" when it did nothing wrong
  bool at_start = false;    ///< before anything was asked of it, and not by a signal
  bool likely_oom = false;  ///< by a SIGKILL that was not ours
};

/// What a worker tells the engine, always on the io thread.
class WorkerEvents {
 public:
  virtual void said_hello(const Json& hello) = 0;
  virtual void refused(const std::string& reason) = 0;  ///< its hello is wrong or did not come; it is being killed
  virtual void answered(Worker& worker) = 0;            ///< a request was answered; the worker may be free
  virtual void stuck(Worker& worker) = 0;               ///< it was killed long ago and is still there
  virtual void gone(Worker& worker, const Death& death) = 0;

 protected:
  ~WorkerEvents() = default;
};

/// One process from its start to its reaping; never reused, so that a late handler can't touch its successor.
/// All of it runs on the io thread.
class Worker : public std::enable_shared_from_this<Worker> {
 public:
  Worker(boost::asio::io_context& io, WorkerEvents& events, const PoolOptions& options, Spawned spawned);

  void start();
  void give(Request request);

  /// Lets a worker without a request end by itself: it leaves at the end of its input.
  void retire();

  /// SIGKILL; the request, if any, gets `outcome` when the process is gone.
  void kill(Outcome outcome, std::string reason);

  /// Answers the request without waiting for the process.
  void abandon(Outcome outcome, const std::string& reason);

  /// Closes everything; the process is somebody else's from now on. Gives its pid.
  pid_t release();

  bool is_starting() const { return phase_ == Phase::starting; }
  bool is_busy() const { return phase_ == Phase::busy; }
  bool is_idle() const { return phase_ == Phase::idle && !dead_; }
  bool is_fresh() const { return served_ == 0; }
  bool is_leaving() const { return phase_ != Phase::starting && phase_ != Phase::idle && phase_ != Phase::busy; }
  bool has_ended() const;  ///< dead, though its death may not have been handled yet
  bool is_stuck() const { return stuck_; }
  uint64_t request_id() const { return request_ ? request_->id : 0; }
  const Spawned& process() const { return process_; }

  int slot = Slots::kNone;  ///< the engine's: which compile slot this worker holds

 private:
  enum class Phase : uint8_t { starting, idle, busy, retiring, killed, gone };

  /// What a death means for the request and for the pool.
  struct Verdict {
    Outcome outcome = Outcome::crash;
    std::string detail;
    Death death;
  };

  /// How a process ended.
  struct Ending {
    std::string text;
    bool known = true;    ///< false: somebody else has collected its status
    bool exited = false;  ///< with a code, not by a signal
    bool by_sigkill = false;
  };

  void watch_death();
  void check_death();
  void bury(const Ending& ending);
  Verdict judge(Phase last, const Ending& ending) const;
  void watch_deadline();
  void rest();
  void close_all();
  void give_up();
  void drain();
  void read_out();
  void read_err();
  void keep_stderr(std::string_view text);
  std::string stderr_tail() const;
  Reply reply_of(Outcome outcome, const std::string& detail) const;
  void take_messages();
  void take_hello(const Json& hello);
  void take_answer(Json& message);
  void pipe_closed(const char* which);

  WorkerEvents& events_;
  const PoolOptions& options_;
  Spawned process_;
  boost::asio::posix::stream_descriptor in_, out_, err_, death_;
  boost::asio::steady_timer ask_timer_, deadline_timer_, kill_timer_;
  Phase phase_ = Phase::starting;
  bool dead_ = false;  ///< it has ended; what its pipes hold is still read
  bool stuck_ = false;
  bool pipe_closed_ = false;  ///< it was killed because a pipe of its closed: its own way of dying says more
  int served_ = 0;
  std::unique_ptr<Request> request_;
  Clock::time_point sent_at_ = Clock::now();
  Milliseconds limit_{};  ///< of the request, as last asked for
  Outcome kill_outcome_ = Outcome::cancelled;
  std::string kill_reason_;
  wire::FrameBuffer buffer_;
  std::string stderr_;
  std::array<char, 65536> out_chunk_{};
  std::array<char, 8192> err_chunk_{};
};

}  // namespace jitune::pool
