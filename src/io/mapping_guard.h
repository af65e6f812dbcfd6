// What happens when a model file shrinks while it is mapped.
//
// Policy: files are mapped read-only and every range is checked against the size at opening. POSIX offers no way to
// read a mapping whose file another program has cut short: the access raises SIGBUS. A library must not install signal
// handlers behind its host's back, so by default the process ends as it would for any other mapped file. Programs that
// own the process (the halfbyte command) call install_mapping_guard(): then the process says which file shrank and
// exits with code 2. Weights are repacked into memory at load, so a served model does not depend on its files after
// loading.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/mapped_file.h"

namespace halfbyte {

// MappedFile::open of a file of a model (refuse_foreign_file), and the mapping is known to the guard as long as it lives.
Result<std::shared_ptr<const MappedFile>> open_guarded(const std::string& path);

// Installs a SIGBUS handler for the whole process: a fault inside a guarded mapping writes one line to stderr and exits
// with code 2; any other SIGBUS gets the default action. Idempotent.
void install_mapping_guard();

// Called once the line is written, before the process exits: removes what is half-written. Null: nothing. It runs in the
// signal handler of a thread that was reading a mapping, so it may wait for no lock that such a thread holds.
void set_mapping_failure_cleanup(void (*cleanup)());

}  // namespace halfbyte
