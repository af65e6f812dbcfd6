// Short forms to pass a failure on to the caller. See halfbyte/status.h for the types.
#pragma once

#include "halfbyte/status.h"

#define HB_CONCAT_INNER(a, b) a##b
#define HB_CONCAT(a, b) HB_CONCAT_INNER(a, b)

// HB_TRY(do_it()): returns do_it()'s Status from this function unless it is ok.
#define HB_TRY(expr)                                                                 \
  do {                                                                               \
    if (::halfbyte::Status hb_status_ = (expr); !hb_status_.ok()) return hb_status_; \
  } while (false)

// HB_ASSIGN(auto x, make_x()): declares or assigns the value, or returns the failure.
#define HB_ASSIGN(lhs, expr) HB_ASSIGN_INNER(HB_CONCAT(hb_result_, __LINE__), lhs, expr)
#define HB_ASSIGN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                    \
  if (!tmp.ok()) return tmp.status();   \
  lhs = std::move(tmp).value()
