// The commands below `halfbyte eval`.
#pragma once

#include "command.h"

namespace halfbyte::tools {

Command add_eval_compare(CLI::App& app);
Command add_eval_sweep(CLI::App& app);

}  // namespace halfbyte::tools
