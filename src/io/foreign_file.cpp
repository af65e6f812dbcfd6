#include "io/foreign_file.h"

#include "io/message.h"

namespace halfbyte {

Status refuse_foreign_file(const std::string& path, std::string_view begin) {
  const auto refuse = [&](const char* what) { return invalid_data(shown(path) + ": " + what); };
  if (begin.starts_with("version https://git-lfs"))
    return refuse("is a Git LFS pointer, not the file itself; fetch it with git lfs pull");
  for (const std::string_view page : {"<!DOCTYPE html", "<!doctype html", "<html"})
    if (begin.starts_with(page)) return refuse("is a web page, not the file itself; download it again");
  return {};
}

}  // namespace halfbyte
