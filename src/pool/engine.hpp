#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "pool/pool.hpp"
#include "pool/slots.hpp"
#include "pool/spawn_policy.hpp"
#include "pool/worker.hpp"

namespace jitune::pool {

/// The io thread of a pool with its queue and its workers. The functions of the first group may be called from any
/// thread; all the rest happens on the io thread. Held by its thread too, so that it outlives every handler.
class Engine : public std::enable_shared_from_this<Engine>, public WorkerEvents {
 public:
  /// Throws a std::exception when the system gives no descriptors or thread.
  static std::shared_ptr<Engine> start(const PoolOptions& options);
  ~Engine();

  /// False when the engine has ended because its descriptors were closed from outside; take a new one then.
  bool submit(Request& request);
  bool warm_up(int count);
  void cancel(uint64_t id);
  void cancel_all();
  /// The future is true when every worker of this moment is gone.
  std::future<bool> restart();
  /// Cancels and kills everything, then joins the thread; at most about a second.
  void shut_down();

  bool on_io_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  Json hello() const;
  int spawned() const { return spawned_; }

 private:
  explicit Engine(PoolOptions options);
  template <class F>
  bool post(F&& action);

  void run();
  void pump();
  bool serve_next();
  bool give_next(Worker& worker);
  bool start_next();
  bool warm_one();
  bool make_room();
  bool start_worker(int slot);
  bool take_slot(int& slot);
  void release_slot(Worker& worker);
  void rest_slots();
  int width();
  void narrow();
  void shed();
  template <class Is>
  size_t count(Is&& is) const;
  void retry_later(Clock::time_point when);
  void fail_queue(Outcome outcome, const std::string& reason);
  void end();
  void finish();
  bool intact() const;
  void lose();
  void settle_restarts();

  void said_hello(const Json& hello) override;
  void refused(const std::string& reason) override;
  void answered(Worker& worker) override;
  void stuck(Worker& worker) override;
  void gone(Worker& worker, const Death& death) override;

  struct Restart {
    std::vector<std::shared_ptr<Worker>> waiting_for;
    std::promise<bool> done;
  };

  const PoolOptions options_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  boost::asio::steady_timer retry_timer_, slot_timer_, end_timer_;
  SpawnPolicy policy_;
  std::unique_ptr<Slots> slots_;  ///< none: every worker may work
  bool slot_missing_ = false;     ///< the last pump() ended for want of one
  std::deque<Request> queue_;
  std::vector<std::shared_ptr<Worker>> workers_;
  std::vector<Restart> restarts_;
  size_t wanted_ = 0;
  int spawn_attempts_ = 0;
  int narrowed_ = 0;  ///< the width after deaths for want of memory; 0: as in the options
  Clock::time_point widen_at_;
  uint64_t alone_ = 0;  ///< the running request that wants no other beside it
  bool ending_ = false;

  UniqueFd canary_;  ///< a descriptor that only we know: when it is not ours any more, none is
  uint64_t canary_device_ = 0, canary_inode_ = 0;

  mutable std::mutex mutex_;
  bool closed_ = false;  ///< with mutex_: nothing may be posted any more
  bool lost_ = false;
  Json hello_;  ///< with mutex_
  std::atomic<int> spawned_{0};
  std::thread thread_;
};

}  // namespace jitune::pool
