// Correctness of a candidate: against double sums, against the host's statement of the order bit for bit, and across M.
#pragma once

#include "harness.h"

namespace halfbyte::ladder {

// Runs every registered candidate over the check shapes; prints a line each; returns the number of failures.
int verify_all(const std::string& filter, bool quick);

}  // namespace halfbyte::ladder
