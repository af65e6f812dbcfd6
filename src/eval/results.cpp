#include "eval/results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/quote.h"
#include "base/quote_path.h"
#include "eval/json_line.h"
#include "io/read_file.h"

namespace halfbyte {
namespace {

Status file_error(const std::string& path, const char* what) {
  const int error = errno;
  const std::string text = fmt::format("{}: {}: {}", quote_path(path), what, std::strerror(error));
  return error == ENOSPC || error == EDQUOT ? resource_exhausted(text + "; free some disk space and start again")
                                            : invalid_argument(text);
}

// Six digits say enough.
double rounded(double share) {
  return std::nearbyint(share * 1e6) / 1e6;
}

std::string line_of(const SampleResult& r) {
  nlohmann::ordered_json out;
  out["id"] = r.id;
  out["sample"] = r.sample;
  out["correct"] = r.correct;
  if (r.score) out["score"] = *r.score;
  out["answer"] = r.answer;
  out["prompt_tokens"] = r.prompt_tokens;
  out["reasoning_tokens"] = r.reasoning_tokens;
  out["tokens"] = r.tokens;
  out["truncated"] = r.truncated;
  out["looped"] = r.looped;
  out["steps"] = r.shape.steps;
  out["repeated"] = rounded(r.shape.repeated);
  out["alike"] = rounded(r.shape.alike);
  if (!r.log_likelihoods.empty()) {
    out["log_likelihoods"] = r.log_likelihoods;
    out["correct_norm"] = r.correct_norm;
  }
  if (!r.token_ids.empty()) out["token_ids"] = r.token_ids;
  return out.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace);
}

Status read_token_ids(const JsonValue& root, std::vector<int32_t>& out) {
  const std::optional<JsonValue> ids = root.find("token_ids");
  if (!ids) return {};
  HB_ASSIGN(const auto elements, ids->elements());
  for (const JsonValue& element : elements) {
    HB_ASSIGN(const int64_t id, element.as_int(0, INT32_MAX));
    out.push_back(static_cast<int32_t>(id));
  }
  return {};
}

Status read_likelihoods(const JsonValue& root, SampleResult& out) {
  const std::optional<JsonValue> likelihoods = root.find("log_likelihoods");
  if (!likelihoods) return {};
  HB_ASSIGN(const auto elements, likelihoods->elements());
  for (const JsonValue& element : elements) {
    HB_ASSIGN(const double value, element.as_double());
    out.log_likelihoods.push_back(value);
  }
  HB_ASSIGN(const JsonValue norm, root.at("correct_norm"));
  HB_ASSIGN(out.correct_norm, norm.as_bool());
  return {};
}

Result<SampleResult> read_line(std::string_view row, const std::string& path, int64_t line) {
  HB_ASSIGN(const auto document, parse_json_line(row, path, line));
  const JsonValue root = document->root();
  SampleResult r;
  for (const auto& [key, out] : {std::pair("id", &r.id), std::pair("answer", &r.answer)}) {
    HB_ASSIGN(const JsonValue value, root.at(key));
    HB_ASSIGN(const std::string_view text, value.as_string());
    *out = std::string(text);
  }
  for (const auto& [key, out] : {std::pair("sample", &r.sample), std::pair("prompt_tokens", &r.prompt_tokens),
                                 std::pair("reasoning_tokens", &r.reasoning_tokens), std::pair("tokens", &r.tokens),
                                 std::pair("steps", &r.shape.steps)}) {
    HB_ASSIGN(const JsonValue value, root.at(key));
    HB_ASSIGN(*out, value.as_int(0, INT64_MAX / 2));
  }
  for (const auto& [key, out] :
       {std::pair("correct", &r.correct), std::pair("truncated", &r.truncated), std::pair("looped", &r.looped)}) {
    HB_ASSIGN(const JsonValue value, root.at(key));
    HB_ASSIGN(*out, value.as_bool());
  }
  for (const auto& [key, out] : {std::pair("repeated", &r.shape.repeated), std::pair("alike", &r.shape.alike)}) {
    HB_ASSIGN(const JsonValue value, root.at(key));
    HB_ASSIGN(*out, value.as_double());
  }
  if (const auto score = root.find("score")) {
    HB_ASSIGN(r.score, score->as_double());
    if (*r.score < 0 || *r.score > 1) return score->error("is not between 0 and 1");
  }
  HB_TRY(read_likelihoods(root, r));
  HB_TRY(read_token_ids(root, r.token_ids));
  return r;
}

// The lines behind the first.
Status read_lines(std::string_view rest, const std::string& path, std::vector<SampleResult>& results) {
  for (int64_t line = 2; !rest.empty(); ++line) {
    const size_t end = rest.find('\n');
    HB_ASSIGN(SampleResult r, read_line(rest.substr(0, end), path, line));
    results.push_back(std::move(r));
    rest.remove_prefix(end + 1);
  }
  return {};
}

using Json = nlohmann::ordered_json;

// Whether a results file says this value. Until 2026-11-30 it said 0.6000000238418579 where it says 0.6 now.
bool same_value(const Json& there, const Json& now) {
  if (there == now) return true;
  return there.is_number_float() && now.is_number_float() &&
         there.get<double>() == static_cast<double>(now.get<float>());
}

const Json* member(const Json& object, const std::string& key) {
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

// Until 2026-11-30 a fingerprint held neither a countdown's numbers nor a question's place among those that were read.
constexpr std::string_view kOfFingerprint =
    " (the questions are others, or a version before 2026-11-30 wrote the file, which left a countdown's numbers and a "
    "question's place in its file out of it)";

// Adds what differs, down to single values, which are short enough to be shown. Null: missing.
void add_differences(const std::string& name, const Json* there, const Json* now, std::vector<std::string>& out) {
  const bool both = there != nullptr && now != nullptr;
  if (both && there->is_object() && now->is_object()) {
    const std::string prefix = name.empty() ? "" : name + ".";
    for (const auto& [key, value] : there->items()) add_differences(prefix + key, &value, member(*now, key), out);
    for (const auto& [key, value] : now->items())
      if (!there->contains(key)) add_differences(prefix + key, nullptr, &value, out);
  } else if (both && there->is_array() && now->is_array() && there->size() == now->size()) {
    for (size_t i = 0; i < there->size(); ++i)
      add_differences(fmt::format("{}[{}]", name, i), &(*there)[i], &(*now)[i], out);
  } else if (!both || !same_value(*there, *now)) {
    const auto shown = [](const Json* value) { return value == nullptr ? "missing" : quote(value->dump(), 200); };
    out.push_back(fmt::format("{} is {} there and {} now{}", quote(name), shown(there), shown(now),
                              name == "fingerprint" ? kOfFingerprint : ""));
  }
}

bool asks_for_tokens(std::string_view settings) {
  const Json all = Json::parse(settings, nullptr, /*allow_exceptions=*/false);
  const Json* keep = all.is_object() ? member(all, "keep_tokens") : nullptr;
  return keep != nullptr && *keep == true;
}

// How the first line of a results file differs from the one that is expected; empty: it does not, but for token ids that it
// has and nobody asks for.
std::string difference(std::string_view found, const std::string& expected) {
  if (found == expected) return "";
  Json there = Json::parse(found, nullptr, /*allow_exceptions=*/false);
  const Json now = Json::parse(expected, nullptr, /*allow_exceptions=*/false);
  if (!there.is_object() || !there.contains("halfbyte_eval") || !now.is_object())
    return "found " + quote(found, 100) + ", expected results of halfbyte eval";
  if (!asks_for_tokens(expected) && asks_for_tokens(found)) there.erase("keep_tokens");
  std::vector<std::string> all;
  add_differences("", &there, &now, all);
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

Result<StoredResults> read_results(const std::string& path) {
  HB_ASSIGN(const auto bytes, read_small_file(path));
  if (!bytes) return not_found(quote_path(path) + ": there is no such file");
  const std::string_view text = std::string_view(*bytes).substr(0, bytes->find_last_of('\n') + 1);
  const size_t first = text.find('\n');
  if (!text.starts_with(R"({"halfbyte_eval":)"))
    return invalid_argument(quote_path(path) + ": is no results file of halfbyte eval");
  StoredResults out{std::string(text.substr(0, first)), {}};
  HB_TRY(read_lines(text.substr(first + 1), path, out.results));
  return out;
}

Result<std::unique_ptr<ResultsFile>> ResultsFile::open(const std::string& path, const std::string& settings_json) {
  auto results = std::make_unique<ResultsFile>();
  results->path_ = path;
  HB_TRY(results->read_existing(settings_json));
  return results;
}

// Opens the file and holds it, so that of two runs the second is refused; what is there is read after that.
Status ResultsFile::hold() {
  // Not blocking: a pipe in the place of a file must not hang the program.
  file_ = std::make_unique<FileDescriptor>(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
  if (file_->get() < 0) return file_error(path_, "cannot be written");
  if (::flock(file_->get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return invalid_argument(fmt::format(
        "{}: another halfbyte eval is writing it; wait for it to end, or name another file", quote_path(path_)));
  return {};
}

Status ResultsFile::read_existing(const std::string& settings_json) {
  HB_TRY(hold());
  HB_ASSIGN(const auto existing, read_small_file(path_));
  const std::string_view text = existing ? std::string_view(*existing) : std::string_view();
  // What a killed run left of its last line counts for nothing.
  const size_t whole = text.find_last_of('\n') + 1;  // 0 without a newline
  std::string_view rest = text.substr(0, whole);
  if (!rest.empty()) {
    const std::string_view first = rest.substr(0, rest.find('\n'));
    if (!first.starts_with('{')) {
      return invalid_argument(fmt::format("{}: is no results file of halfbyte eval, found {}; name another file",
                                          quote_path(path_), quote(first, 100)));
    }
    if (const std::string other = difference(first, settings_json); !other.empty()) {
      return invalid_argument(
          fmt::format("{}: holds results of other settings, so it is not continued: {}; name another file",
                      quote_path(path_), other));
    }
    keeps_tokens_ = asks_for_tokens(first);
    rest.remove_prefix(first.size() + 1);
  } else if (!text.empty() && !std::string_view(settings_json).starts_with(text)) {
    return invalid_argument(
        fmt::format("{}: is no results file of halfbyte eval; name another file", quote_path(path_)));
  }
  HB_TRY(read_lines(rest, path_, results_));
  if (::ftruncate(file_->get(), static_cast<off_t>(whole)) != 0) return file_error(path_, "cannot be cut");
  if (::lseek(file_->get(), 0, SEEK_END) < 0) return file_error(path_, "cannot be continued");
  if (whole > 0) return {};
  keeps_tokens_ = asks_for_tokens(settings_json);
  return write_line(settings_json);
}

Status ResultsFile::write_line(const std::string& line) {
  std::string bytes = line + "\n";
  std::string_view left = bytes;
  while (!left.empty()) {
    const ssize_t n = ::write(file_->get(), left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(path_, "cannot be written");
    left.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Status ResultsFile::append(const SampleResult& result) {
  if (file_) HB_TRY(write_line(line_of(result)));
  results_.push_back(result);
  return {};
}

}  // namespace halfbyte
