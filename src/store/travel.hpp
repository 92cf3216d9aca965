#pragma once

#include <vector>

#include "store/sqlite.hpp"
#include "store/store.hpp"

/// The SQL of winners that travel; see rows.hpp for the manner.
namespace jitune::store {

/// All winners, sorted as by reduce(). `with_bytes`: cubins too, checked; those that are damaged come back empty.
std::vector<WinnerRecord> read_records(Database& database, bool with_bytes);

/// (t) Takes a record in, where it beats the winner that is stored. Times of rows are `now`, or the record's own where
/// that is 0.
void take_in(Database& database, const WinnerRecord& record, int64_t now, Store::TakenIn& counts);

}  // namespace jitune::store
