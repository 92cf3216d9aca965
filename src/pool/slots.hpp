#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/result.hpp"
#include "pool/pool.hpp"

namespace jitune::pool {

/// One process's part in the compile slots that all jitune processes of a user share on a machine.
///
/// A slot is a locked byte of one file (open file description locks, so the kernel frees the slots of a process that
/// dies, and two pools of one process are two holders). Whoever has or wants slots also holds a byte that says "here",
/// and whoever wants one and has less than its share one that says "hungry". A share is slots / holders here, at least
/// one. Nobody takes more than its share while another one is hungry, and a newcomer is hungry for one round before it
/// takes a slot that others wait for: a process that gives a slot back can't snatch it from them for ever.
///
/// Nothing here blocks: who gets no slot asks again every kSlotPoll. Not thread-safe.
class Slots {
 public:
  /// Makes `directory` (0700) and the file in it. Fails when the folder belongs to somebody else, is a link, or is open
  /// to others: a lock that anybody can hold is no lock. `patience`: how long a holder without any slot sees none
  /// change hands before it goes on with one compiler all the same, so that a stopped process can't stop the others.
  static Result<std::unique_ptr<Slots>> open(const SlotOptions& options);
  ~Slots();
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  static constexpr int kNone = -1;
  static constexpr int kBorrowed = -2;  ///< after the patience: no byte is locked for it

  /// A slot, or kNone: ask again after kSlotPoll.
  int take(Clock::time_point now);
  void give_back(int slot);

  /// Nothing is wanted for now. With no slot held either, the share becomes the others'.
  void want_nothing();

  int held() const { return held_; }

 private:
  Slots(UniqueFd file, const SlotOptions& options);
  bool lock(int64_t byte);
  void unlock(int64_t byte);
  std::optional<int64_t> first_locked(int64_t begin, int64_t end) const;
  int64_t lock_any(int64_t region);
  int share() const;
  void set_hungry(bool hungry);
  void stamp(int slot, Clock::time_point now);
  bool others_moved();

  UniqueFd file_;
  int count_;
  Milliseconds patience_;
  std::vector<bool> own_;
  int held_ = 0;
  int64_t here_byte_ = -1, hungry_byte_ = -1;
  std::optional<Clock::time_point> waiting_since_;
  Clock::time_point newcomer_until_{};
  std::vector<int64_t> stamps_;  ///< when each slot was last taken, as last seen
  bool overdue_ = false;
};

inline constexpr Milliseconds kSlotPoll{4};

}  // namespace jitune::pool
